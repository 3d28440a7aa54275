"""Makes references for words of transcripts: what openai-whisper makes of scripts.

    python -m tools.make_word_references --output tests/data/speech

Needs what tools/make_transcript_references.py does. words.json has texts in words;
runs of whisper.transcribe with word_timestamps, whose model returns the tokens of a
script and whose alignment the times and probabilities of one; and subtitles of words
with each option of its writers.
"""

import argparse
import io
import itertools
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import whisper
import whisper.timing
from whisper.timing import WordTiming
from whisper.tokenizer import Tokenizer
from whisper.utils import get_writer

from tools.make_speech_references import make_tokenizer
from tools.make_transcript_references import Script

NUM_RUNS = 60
NUM_TEXTS = 60
TEXTS = [" Well, (that) is 3.5% of \"it\"!", "日本語。テスト", " naïve café", "\n\n - a",
         " ¿Qué? “Sí”", "x"]


def draw_text(rng: random.Random, tokenizer: Tokenizer) -> list[int]:
    """Tokens of a text, some of which are lost, or any tokens."""
    if rng.random() < 0.3:
        return [rng.randrange(tokenizer.eot) for _ in range(rng.randint(1, 12))]
    tokens = tokenizer.encode("".join(rng.choices(TEXTS, k=rng.randint(1, 3))))
    return [token for token in tokens if rng.random() < 0.95] or [0]


def make_texts(tokenizers: dict[str, Tokenizer]) -> list[dict[str, Any]]:
    rng = random.Random(1)
    texts = []
    while len(texts) < NUM_TEXTS:
        language = rng.choice(sorted(tokenizers))
        tokenizer = tokenizers[language]
        tokens = draw_text(rng, tokenizer)
        words, word_tokens = tokenizer.split_to_word_tokens([*tokens, tokenizer.eot])
        # Some bytes that form no character have no word there.
        if word_tokens[-1] != [tokenizer.eot]:
            continue
        texts.append({"language": language, "tokens": tokens,
                      "words": [[word, part] for word, part
                                in zip(words[:-1], word_tokens[:-1])]})
    return texts


class WordScript(Script):
    """Windows of punctuated texts, and times of their tokens."""

    def decode(self, segment: torch.Tensor, options: Any) -> Any:
        result = super().decode(segment, options)
        # Two times of which the first is 0 end no window there either.
        first = self.tokenizer.timestamp_begin
        if len(result.tokens) == 2 and result.tokens[0] == first:
            result.tokens[0] += 1
        return result

    def align(self, _model: Any, tokenizer: Tokenizer, text: list[int], _mel: Any,
              num_frames: int, **_options: Any) -> list[WordTiming]:
        if not text:
            return []
        rng = self.rng
        last = max(num_frames // 2 - 1, 0)
        # Some tokens take no time, and some a pause.
        gaps = [rng.choice([0, 3, 9, 20, rng.randint(0, 180)]) for _ in range(len(text) + 1)]
        steps = [min(step, last) for step in itertools.accumulate(gaps)]
        probabilities = [rng.choice([0.0625, 0.5, 0.875]) for _ in text]
        self.windows[-1] |= {"steps": steps, "probabilities": probabilities}
        words, parts = tokenizer.split_to_word_tokens([*text, tokenizer.eot])
        timings = []
        at = 0
        for word, part in zip(words[:-1], parts[:-1]):
            end = at + len(part)
            timings.append(WordTiming(
                word, part, steps[at] / 50, steps[end] / 50,
                sum(probabilities[at:end]) / len(part)))
            at = end
        return timings


def make_run(seed: int, tokenizer: Tokenizer) -> dict[str, Any]:
    rng = random.Random(seed)
    content = rng.choice([37, 2999, 3000, 9000, rng.randint(100, 15000)])
    options: dict[str, Any] = {
        "condition_on_previous_text": rng.random() < 0.8,
        "clip_timestamps": [] if content < 7000 else rng.choice(
            [[], [1.5], [0.0, 2.0, 10.005, 50.0, 60.0]]),
        "hallucination_silence_threshold": rng.choice([None, None, 0.5, 2.0]),
    }
    if rng.random() < 0.2:
        options |= {"prepend_punctuations": "(", "append_punctuations": ",!"}
    script = WordScript(rng, tokenizer)
    script.words = [token for token in tokenizer.encode("".join(TEXTS) + ". , ( ! . \" -")
                    if "\ufffd" not in tokenizer.decode([token])]
    mel = torch.zeros(80, content + 3000)
    mel[:, :content] = 1
    with (mock.patch.multiple(sys.modules["whisper.transcribe"],
                              log_mel_spectrogram=lambda *a, **k: mel,
                              get_tokenizer=lambda *a, **k: tokenizer),
          mock.patch.object(whisper.timing, "find_alignment", script.align)):
        result = whisper.transcribe(script, "", temperature=0.0, language="en",
                                    fp16=False, word_timestamps=True, **options)
    return {"num_frames": content, **options, "initial": [], "windows": script.windows,
            "segments": [[segment[name] for name in
                          ("seek", "start", "end", "text", "tokens")]
                         + [[[word[name] for name in
                              ("word", "start", "end", "probability")]
                             for word in segment["words"]]]
                         for segment in result["segments"] if segment["text"]]}


def make_subtitles() -> dict[str, Any]:
    rng = random.Random(2)
    at = 0.0
    segments = []
    for size in (3, 1, 0, 12, 7, 2, 5):
        words = []
        for _ in range(size):
            at += rng.choice([0.0, 0.0, 0.25, 4.5])
            start, at = at, at + rng.choice([0.0, 0.12, 0.4])
            word = rng.choice([" Hello", " I", "-", " „Ärger“", " x" * 9, "日本", "\n ja",
                               " a\nb", " ", " -->", " long" + "er" * 12])
            words.append({"word": word, "start": round(start, 2), "end": round(at, 2)})
        segments.append({"id": len(segments), "start": words[0]["start"] if words else at,
                         "end": at, "words": words,
                         "text": "".join(word["word"] for word in words)})
    files = []
    for width, count, most, highlight in itertools.product(
            (None, 1, 12, 42), (None, 1, 2), (None, 1, 3), (False, True)):
        options = {"max_line_width": width, "max_line_count": count,
                   "max_words_per_line": most, "highlight_words": highlight}
        if highlight and (width, count) not in ((None, None), (12, 2)):
            continue
        file: dict[str, Any] = {name: value for name, value in options.items() if value}
        with tempfile.TemporaryDirectory() as directory:
            for name in ("vtt", "srt"):
                out = io.StringIO()
                get_writer(name, directory).write_result(
                    {"segments": segments}, file=out, options=options)
                file[name] = out.getvalue()
        if len(files) > 4:
            file.pop("vtt")
        files.append(file)
    return {"segments": [[[word["word"], word["start"], word["end"]]
                          for word in segment["words"]] for segment in segments],
            "files": files}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    output = parser.parse_args().output
    with tempfile.TemporaryDirectory() as directory:
        tokenizer = make_tokenizer(Path(directory), "multilingual", 100, False)
    tokenizers = {
        language: Tokenizer(encoding=tokenizer.encoding, num_languages=100,
                            language=language, task="transcribe")
        for language in ("en", "ja")}
    references = {"texts": make_texts(tokenizers),
                  "runs": [make_run(seed, tokenizer) for seed in range(NUM_RUNS)],
                  "subtitles": make_subtitles()}
    (output / "words.json").write_text(json.dumps(references) + "\n")


if __name__ == "__main__":
    main()

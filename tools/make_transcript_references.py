"""Makes references for speech/: what openai-whisper makes of decoded windows.

    python -m tools.make_transcript_references --output tests/data/speech

Needs openai-whisper 20250625 beside tools/requirements.txt, and the tokenizers of
tools/make_speech_references.py. transcripts.json has runs of whisper.transcribe
whose model returns the tokens of a script: the windows and prompts that it was
asked for, and the segments that came of them, but for blank ones, which we drop;
what its writers make of segments; and its compression ratios of texts.
"""

import argparse
import io
import json
import random
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import whisper
from whisper.decoding import DecodingResult
from whisper.tokenizer import Tokenizer
from whisper.utils import compression_ratio, get_writer

from tools.make_speech_references import make_tokenizer

NUM_RUNS = 30
TEXTS = ["", "a", "I am.", "la " * 60, "Ä" * 7 + "日本語" * 9,
         "and so my fellow americans ask not what your country can do for you"]


def text_tokens(tokenizer: Tokenizer) -> list[int]:
    """Tokens that are printed as they are."""
    return [token for token in range(tokenizer.eot)
            if (text := tokenizer.encoding.decode_single_token_bytes(token)).isascii()
            and text.decode().isprintable()]


def draw_window(rng: random.Random, tokenizer: Tokenizer, words: list[int]) -> Any:
    """Tokens of a window, with and without times; some kinds have none."""
    first = tokenizer.timestamp_begin
    kind = rng.choice(["pairs", "single", "open", "none", "blank", "times", "empty"])
    text = lambda: rng.choices(words, k=rng.randint(1, 6))  # noqa: E731
    times = sorted(rng.randint(0, 1500) for _ in range(8))
    tokens = []
    if kind in ("pairs", "open", "single"):
        for i in range(rng.randint(1, 3)):
            tokens += [first + times[2 * i], *text(), first + times[2 * i + 1]]
        if kind == "pairs":
            tokens += [first + times[-1]]
        if kind == "open":
            tokens += [first + times[-1], *text()]
    if kind == "none":
        tokens = text()
    if kind == "blank":
        tokens = [first, *tokenizer.encode(" "), first + 9, first + 9, *text(),
                  first + 9]
    if kind == "times":
        tokens = [first + times[0], first + times[-1]]
    # A time that is 0 ends no window, and would come for ever.
    if len(tokens) > 1 and tokens[-2:] == [first, first]:
        tokens[-1] = first + 1
    return {"tokens": tokens, "avg_logprob": rng.choice([-0.3, -1.2]),
            "no_speech_prob": rng.choice([0.1, 0.1, 0.7]),
            "temperature": rng.choice([0.0, 0.4, 0.6, 1.0])}


class Script:
    """A model that returns windows of a script."""

    device = torch.device("cpu")
    is_multilingual = True
    num_languages = 100
    dims = SimpleNamespace(n_mels=80, n_audio_ctx=1500, n_text_ctx=448)

    def __init__(self, rng: random.Random, tokenizer: Tokenizer) -> None:
        self.rng = rng
        self.tokenizer = tokenizer
        self.words = text_tokens(tokenizer)
        self.windows: list[dict[str, Any]] = []

    def decode(self, segment: torch.Tensor, options: Any) -> DecodingResult:
        # The frames of content are 1, what is added is 0.
        window = draw_window(self.rng, self.tokenizer, self.words)
        window["size"] = int(segment[0].sum().item())
        window["prompt"] = list(options.prompt)[-223:]
        self.windows.append(window)
        return DecodingResult(
            audio_features=segment, language="en", tokens=window["tokens"],
            avg_logprob=window["avg_logprob"], temperature=window["temperature"],
            no_speech_prob=window["no_speech_prob"], compression_ratio=1.0)


def make_run(seed: int, tokenizer: Tokenizer) -> dict[str, Any]:
    rng = random.Random(seed)
    content = rng.choice([1, 2999, 3000, 3001, 9000, rng.randint(1, 20000)])
    options: dict[str, Any] = {
        "condition_on_previous_text": rng.random() < 0.8,
        # openai's clips past the end of the audio have windows of no frames.
        "clip_timestamps": [] if content < 7000 else rng.choice(
            [[], [1.5], [0.0, 2.0, 10.005, 50.0, 60.0]]),
        "initial_prompt": rng.choice([None, "Hello world", " Ask not what your country can do for you." * 24]),
    }
    if options["initial_prompt"]:
        options["carry_initial_prompt"] = rng.random() < 0.3
    script = Script(rng, tokenizer)
    mel = torch.zeros(80, content + 3000)
    mel[:, :content] = 1
    # whisper.transcribe is the function.
    with mock.patch.multiple(sys.modules["whisper.transcribe"],
                             log_mel_spectrogram=lambda *a, **k: mel,
                             get_tokenizer=lambda *a, **k: tokenizer):
        result = whisper.transcribe(
            script, "", temperature=0.0, language="en", fp16=False, **options)
    initial = options.pop("initial_prompt")
    segments = [segment for segment in result["segments"] if segment["text"]]
    return {"num_frames": content, **options,
            "initial": tokenizer.encode(" " + initial.strip()) if initial else [],
            "windows": script.windows,
            "segments": [[segment[name] for name in
                          ("seek", "start", "end", "text", "tokens")]
                         for segment in segments]}


def make_files() -> dict[str, Any]:
    texts = [" Hello.", "a --> b-->", "\ttab\there ", "\u3000wide\u00a0",
             " \x1cold\x85", "", "日本"]
    segments = [{"id": i, "start": start, "end": end, "text": texts[i % len(texts)]}
                for i, (start, end) in enumerate([
                    (0.0, 0.0005), (0.0015, 1.0025), (1.0035, 59.9995),
                    (59.9996, 60.02), (3599.9995, 3599.9996), (3600.0, 7325.678),
                    (359999.9, 360000.5)])]
    files = {}
    with tempfile.TemporaryDirectory() as directory:
        for name in ("txt", "vtt", "srt", "tsv"):
            out = io.StringIO()
            get_writer(name, directory).write_result({"segments": segments}, file=out)
            files[name] = out.getvalue()
    return {"segments": [[s["start"], s["end"], s["text"]] for s in segments], **files}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    output = parser.parse_args().output
    with tempfile.TemporaryDirectory() as directory:
        tokenizer = make_tokenizer(Path(directory), "multilingual", 100, False)
    references = {"runs": [make_run(seed, tokenizer) for seed in range(NUM_RUNS)],
                  "files": make_files(),
                  "ratios": [[text, compression_ratio(text)] for text in TEXTS]}
    (output / "transcripts.json").write_text(json.dumps(references) + "\n")


if __name__ == "__main__":
    main()

"""Makes references for speech/: what openai-whisper makes of audio.

    python -m tools.make_speech_references --output tests/data/speech

Needs openai-whisper 20250625 beside tools/requirements.txt. log_mel.safetensors
has clips, `audio.CLIP` in float32 at 16 kHz, and of each `features.CLIP.BANDS`,
[frames, bands], of 80 and 128 bands: whisper.audio.log_mel_spectrogram,
transposed, and run in float64. In float32, as whisper runs it, it is up to 4e-5
off for these clips. They are made by formulas and hold 16-bit samples, as files
do.

tokenizer/ and old_english_tokenizer/ have a tokenizer.json of the 256 bytes and the
pieces of openai's vocabularies that spell some texts and all symbols that are not
spoken; the first with 100 languages, the second as older files are, which lack
times. whisper_tokens.json has what openai's Tokenizer and DecodingTask make of them.
"""

import argparse
import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import tiktoken
import torch
import whisper.audio
from safetensors.numpy import save_file
from whisper.decoding import DecodingOptions, DecodingTask
from whisper.tokenizer import LANGUAGES, Tokenizer

RATE = 16000


def vowels(rng: np.random.Generator, size: int) -> np.ndarray:
    """A voice of gliding pitch and formants, with pauses and breath."""
    t = np.arange(size) / RATE
    phase = 2 * np.pi * np.cumsum(120 + 40 * np.sin(2 * np.pi * 1.7 * t)) / RATE
    voice = np.zeros(size)
    for harmonic in range(1, 40):
        hz = 120 * harmonic
        formants = sum(np.exp(-(((hz - center - 200 * np.sin(9 * t)) / 180) ** 2))
                       for center in (600, 1400, 2600))
        voice += formants / harmonic * np.sin(harmonic * phase)
    loudness = np.clip(np.sin(2 * np.pi * 2.5 * t), 0, None) ** 0.5
    return 0.3 * loudness * voice + 0.002 * rng.normal(size=size)


def make_clips() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(41)
    t = np.arange(6400) / RATE
    clips = {
        "voice": vowels(rng, 12801),
        "chirp": 0.8 * np.sin(2 * np.pi * (100 * t + 7900 / 0.8 * t * t)),
        "faint": 3e-5 * rng.normal(size=1700),
        "noise_then_silence": np.concatenate(
            [rng.uniform(-1, 1, 1000), np.zeros(2000)]),
    }
    return {name: np.round(np.clip(clip, -1, 32767 / 32768) * 32768)
            .astype(np.int16).astype(np.float32) / 32768
            for name, clip in clips.items()}


def features_of(clip: np.ndarray, bands: int) -> np.ndarray:
    filters = whisper.audio.mel_filters
    torch.set_default_dtype(torch.float64)  # of the window
    whisper.audio.mel_filters = lambda *args: filters(*args).double()
    try:
        features = whisper.audio.log_mel_spectrogram(
            torch.from_numpy(clip).double(), n_mels=bands)
    finally:
        torch.set_default_dtype(torch.float32)
        whisper.audio.mel_filters = filters
    return np.ascontiguousarray(features.float().numpy().T)


PATTERN = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
           r"|\s+(?!\S)|\s+")
SYMBOLS = list('"#()*+/:;<=>@[\\]^_`{|}~「」『』♩♪♫♬♭♮♯') + (
    "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪ - '".split())
TEXTS = [" Ask not what your country can do for you.", " world", "Hello"]


def parts_of(token: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """The two pieces that the last merge joins to the token."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 2:
        pairs = [(ranks.get(a + b, 1 << 30), i)
                 for i, (a, b) in enumerate(zip(parts, parts[1:]))]
        _, i = min(pairs)
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
    return parts


def reduced_ranks(name: str) -> tuple[list[bytes], dict[bytes, int]]:
    """The pieces that are kept, in the order of their ranks."""
    path = Path(whisper.audio.__file__).parent / "assets" / f"{name}.tiktoken"
    ranks = {base64.b64decode(token): int(rank)
             for token, rank in map(str.split, path.read_text().splitlines())}
    encoding = tiktoken.Encoding(name, pat_str=PATTERN, mergeable_ranks=ranks,
                                 special_tokens={})
    kept = {bytes([i]) for i in range(256)}

    def keep(token: bytes) -> None:
        if token not in kept:
            kept.add(token)
            for part in parts_of(token, ranks):
                keep(part)

    for text in [*SYMBOLS, *(" " + symbol for symbol in SYMBOLS), *TEXTS]:
        for token in encoding.encode(text):
            keep(encoding.decode_single_token_bytes(token))
    return sorted(kept, key=ranks.__getitem__), ranks


def byte_letters() -> dict[int, str]:
    """The letters that stand for bytes in a vocabulary of GPT-2."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in shown}
    others = [byte for byte in range(256) if byte not in letters]
    return letters | {byte: chr(256 + i) for i, byte in enumerate(others)}


def make_tokenizer(directory: Path, name: str, num_languages: int,
                   is_old: bool) -> Tokenizer:
    pieces, ranks = reduced_ranks(name)
    letters = byte_letters()
    spell = lambda piece: "".join(letters[byte] for byte in piece)  # noqa: E731
    languages = list(LANGUAGES)[:num_languages]
    names = ["endoftext", "startoftranscript", *languages, "translate", "transcribe",
             "startoflm", "startofprev", "nocaptions" if is_old else "nospeech",
             "notimestamps"]
    times = [f"{i * 0.02:.2f}" for i in range(1501)]
    added = [{"id": len(pieces) + i, "content": f"<|{content}|>", "single_word": False,
              "lstrip": False, "rstrip": False, "normalized": False,
              "special": i < len(names)}
             for i, content in enumerate(names if is_old else names + times)]
    merges = [parts_of(piece, ranks) for piece in pieces if len(piece) > 1]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False,
                  "trim_offsets": True, "use_regex": True}
    directory.mkdir(exist_ok=True)
    (directory / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": "", "end_of_word_suffix": "",
                  "fuse_unk": False, "byte_fallback": False,
                  "vocab": {spell(piece): i for i, piece in enumerate(pieces)},
                  "merges": [" ".join(map(spell, merge)) for merge in merges]},
    }, ensure_ascii=False) + "\n")
    # openai's own has the newer name.
    special = {f"<|{content}|>".replace("nocaptions", "nospeech"): len(pieces) + i
               for i, content in enumerate(names + times)}
    encoding = tiktoken.Encoding(
        name, pat_str=PATTERN,
        mergeable_ranks={piece: i for i, piece in enumerate(pieces)},
        special_tokens=special)
    return Tokenizer(encoding, num_languages)


def openai_tokens(tokenizer: Tokenizer, is_multilingual: bool) -> dict[str, Any]:
    special = [tokenizer.transcribe, tokenizer.translate, tokenizer.sot,
               tokenizer.sot_prev, tokenizer.sot_lm, tokenizer.no_speech]
    prompts = []
    for language, task in ([("en", "transcribe"), ("de", "translate")]
                           if is_multilingual else [(None, None)]):
        told = Tokenizer(tokenizer.encoding, tokenizer.num_languages, language, task)
        for has_timestamps in (True, False):
            for num_previous in (0, 3, 223, 224):
                previous = [tokenizer.timestamp_begin + 7, *range(1, num_previous)]
                previous = previous[:num_previous]
                tokens = DecodingTask._get_initial_tokens(SimpleNamespace(
                    sot_sequence=told.sot_sequence if has_timestamps
                    else told.sot_sequence_including_notimestamps,
                    options=DecodingOptions(prompt=previous), n_ctx=448,
                    sample_len=224, tokenizer=told))
                prompts.append({"language": language, "task": task,
                                "has_timestamps": has_timestamps,
                                "previous": previous, "tokens": list(tokens)})
    return {
        "end": tokenizer.eot, "start": tokenizer.sot,
        "translate": tokenizer.translate, "transcribe": tokenizer.transcribe,
        "start_of_lm": tokenizer.sot_lm, "start_of_previous": tokenizer.sot_prev,
        "no_speech": tokenizer.no_speech, "no_timestamps": tokenizer.no_timestamps,
        "first_time": tokenizer.timestamp_begin,
        "languages": dict(sorted((tokenizer.decode([token]).strip("<|>"), token)
                                 for token in tokenizer.all_language_tokens)),
        "not_spoken": sorted({*tokenizer.non_speech_tokens, *special}),
        "not_at_begin": sorted([*tokenizer.encode(" "), tokenizer.eot]),
        "prompts": prompts,
    }


def make_tokens(output: Path) -> None:
    tokens = {
        "tokenizer": openai_tokens(
            make_tokenizer(output / "tokenizer", "multilingual", 100, False), True),
        "old_english_tokenizer": openai_tokens(
            make_tokenizer(output / "old_english_tokenizer", "gpt2", 99, True), False),
    }
    (output / "whisper_tokens.json").write_text(json.dumps(tokens) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, clip in make_clips().items():
        tensors[f"audio.{name}"] = clip
        for bands in (80, 128):
            tensors[f"features.{name}.{bands}"] = features_of(clip, bands)
    save_file(tensors, output / "log_mel.safetensors")
    make_tokens(output)


if __name__ == "__main__":
    main()

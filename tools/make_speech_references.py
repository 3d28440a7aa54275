"""Makes references for speech/: what openai-whisper makes of audio.

    python -m tools.make_speech_references --output tests/data/speech

Needs openai-whisper 20250625 beside tools/requirements.txt. log_mel.safetensors
has clips, `audio.CLIP` in float32 at 16 kHz, and of each `features.CLIP.BANDS`,
[frames, bands], of 80 and 128 bands: whisper.audio.log_mel_spectrogram,
transposed, and run in float64. In float32, as whisper runs it, it is up to 4e-5
off for these clips. They are made by formulas and hold 16-bit samples, as files
do.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import whisper.audio
from safetensors.numpy import save_file

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


if __name__ == "__main__":
    main()

"""Transcripts: what was said in an audio, under the names that the JSON of
`espalier transcribe` and of the server has. Times are seconds."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TranscriptWord:
    #: With the space before it.
    word: str
    start: float
    end: float
    #: The mean of its tokens', among tokens of text.
    probability: float


@dataclass(frozen=True)
class TranscriptSegment:
    #: From 0.
    id: int
    #: Where its window begins, in frames of 10 ms.
    seek: int
    start: float
    end: float
    #: As the model writes it, with the space before it.
    text: str
    #: Times included.
    tokens: list[int]
    # The rest is that of the whole window.
    temperature: float
    #: Nats a token, the end included.
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    #: Its code, with `multilingual`; else None.
    language: str | None = None
    #: With `word_timestamps`; else None.
    words: list[TranscriptWord] | None = None


@dataclass(frozen=True)
class TranscriptAlternative:
    """A hypothesis of a window."""

    text: str
    #: Times included.
    tokens: list[int]
    #: What they are ranked by.
    score: float
    avg_logprob: float


@dataclass(frozen=True)
class TranscriptWindow:
    """At most 30 s of audio that are transcribed at once."""

    seek: int
    start: float
    end: float
    #: True if it was skipped: it has no segments.
    is_silent: bool
    temperature: float
    no_speech_prob: float
    #: Best first; its segments are those of the first.
    alternatives: list[TranscriptAlternative]


@dataclass(frozen=True)
class Transcript:
    text: str
    segments: list[TranscriptSegment]
    #: Its code, such as "en".
    language: str
    #: 1 if it was given.
    language_probability: float
    #: Of the audio.
    duration: float
    #: With `num_alternatives`; else empty.
    windows: list[TranscriptWindow] = field(default_factory=list)


def _segment(fields: dict[str, Any]) -> TranscriptSegment:
    if "words" in fields:
        fields["words"] = [TranscriptWord(**word) for word in fields["words"]]
    return TranscriptSegment(**fields)


def _window(fields: dict[str, Any]) -> TranscriptWindow:
    fields["alternatives"] = [
        TranscriptAlternative(**alternative) for alternative in fields["alternatives"]
    ]
    return TranscriptWindow(**fields)


def segment_of(line: str) -> TranscriptSegment:
    """A segment of its JSON."""
    return _segment(json.loads(line))


def transcript_of(line: str) -> Transcript:
    """A transcript of its JSON."""
    fields = json.loads(line)
    fields["segments"] = [_segment(segment) for segment in fields["segments"]]
    fields["windows"] = [_window(window) for window in fields.get("windows", [])]
    return Transcript(**fields)

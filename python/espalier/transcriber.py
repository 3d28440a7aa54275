"""Transcriber: audio as text with times, by a Whisper model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, TypedDict, Union

from ._espalier import AudioSource, SpeechEngine, Transcription
from .engines import close_at_exit, seconds
from .errors import invalid
from .transcripts import Transcript, TranscriptSegment, segment_of, transcript_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: A path; the bytes of a file, or an open file; or an array of float32, mono at
#: 16 kHz, of numpy, torch or anything else with DLPack or buffers.
Audio = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, BinaryIO, Any]
OnSegment = Callable[[TranscriptSegment], object]


class TranscribeOptions(TypedDict, total=False):
    """Options of a transcription: those of `espalier transcribe`, whose help
    explains them, with their defaults (docs/speech.md)."""

    #: A code or an English name; None: detected.
    language: str | None
    #: "transcribe" or "translate", into English.
    task: str
    #: The first to try, or all of them, in turn: 0, 0.2, 0.4, 0.6, 0.8, 1.
    temperature: float | list[float] | tuple[float, ...]
    compression_ratio_threshold: float | None  # 2.4
    logprob_threshold: float | None  # -1
    log_prob_threshold: float | None  # faster-whisper's name of it
    no_speech_threshold: float | None  # 0.6
    eager_fallback: bool
    num_beams: int  # 5
    beam_size: int  # faster-whisper's name of it
    best_of: int  # 5
    patience: float  # 1
    length_penalty: float  # 1
    seed: int  # 0
    condition_on_previous_text: bool  # True
    prompt_reset_on_temperature: float  # 0.5
    initial_prompt: str | None
    carry_initial_prompt: bool
    hotwords: str | None
    prefix: str | None
    suppress_tokens: list[int] | tuple[int, ...] | None  # [-1]
    suppress_blank: bool  # True
    max_new_tokens: int | None
    without_timestamps: bool
    max_initial_timestamp: float | None  # 1
    clip_timestamps: list[float] | tuple[float, ...] | None
    word_timestamps: bool
    prepend_punctuations: str
    append_punctuations: str
    hallucination_silence_threshold: float | None
    language_detection_threshold: float  # 0.5
    language_detection_segments: int  # 1
    multilingual: bool
    num_alternatives: int  # 0
    #: Transcribes only what the Transcriber's `vad_model` takes for speech.
    vad_filter: bool
    vad_threshold: float  # 0.5
    vad_neg_threshold: float | None
    vad_min_speech_duration_ms: float  # 0
    vad_max_speech_duration_s: float  # infinite; 30 with batch_size
    vad_min_silence_duration_ms: float  # 2000; 160 with batch_size
    vad_speech_pad_ms: float  # 400
    #: Chunks of speech at a time, with vad_filter; None: one window after the
    #: other, each with what was said before it.
    batch_size: int | None


def _source(audio: Audio) -> AudioSource:
    if isinstance(audio, (str, os.PathLike)):
        return AudioSource.of_file(os.fsencode(audio))
    if hasattr(audio, "read"):
        audio = audio.read()
        if not isinstance(audio, bytes):
            raise invalid("audio", "must be a file opened in binary mode", audio)
    if isinstance(audio, (bytes, bytearray)) or (
        isinstance(audio, memoryview) and audio.format in ("B", "b", "c")
    ):
        return AudioSource.of_content(bytes(audio))
    return AudioSource.of_samples(audio)


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers and arrays of other libraries as Python's."""
    return {
        name: value.tolist() if hasattr(value, "tolist") else value
        for name, value in options.items()
    }


def _take(running: Transcription, on_segment: OnSegment | None) -> Transcript | None:
    """Hands over the segments that have come; the transcript, if it is there."""
    lines, answer = running.take()
    if on_segment is not None:
        for line in lines:
            on_segment(segment_of(line))
    if isinstance(answer, BaseException):
        raise answer
    return None if answer is None else transcript_of(answer)


class Transcriber:
    """A Whisper model and its engine.

    >>> transcriber = espalier.Transcriber("whisper-base", vad_model="silero.safetensors")
    >>> transcript = transcriber.transcribe("talk.mp3", language="en")
    >>> for segment in transcript.segments:
    ...     print(segment.start, segment.end, segment.text)

    Calls of all threads and event loops run together, and give the same results
    as alone. Errors are those of espalier.errors; a wrong option raises
    InvalidArgument before audio is read.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        device: str = "cpu",
        dtype: str = "",
        weights: str = "stored",
        num_threads: int = 0,
        kv_cache_mib: int | None = None,
        host_cache_mib: int | None = None,
        page_size: int | None = None,
        max_step_tokens: int | None = None,
        max_beams: int | None = None,
        step_timeout: float | None = None,
        num_sequences: int = 5,
        num_windows: int = 1,
        vad_model: str | os.PathLike[str] = "",
    ) -> None:
        """Loads a model directory (docs/speech.md). Options are those of LLM, but
        for these: `kv_cache_mib` is by default what `num_windows` at a time and
        one more take, each with `num_sequences` beams or samples; more at a time
        wait. `vad_model` is the network of `vad_filter`, the file
        silero_vad_16k.safetensors of the package silero-vad."""
        self._engine = SpeechEngine(
            os.fspath(directory),
            device=device,
            dtype=dtype,
            weights=weights,
            num_threads=num_threads,
            kv_cache_mib=kv_cache_mib,
            host_cache_mib=host_cache_mib,
            page_size=page_size,
            max_step_tokens=max_step_tokens,
            max_beams=max_beams,
            step_timeout=seconds(step_timeout, "step_timeout"),
            num_sequences=num_sequences,
            num_windows=num_windows,
            vad_model=os.fspath(vad_model),
        )
        close_at_exit(self._engine)
        self.directory = os.fspath(directory)

    def _start(
        self, audio: Audio, timeout: float | None, options: Mapping[str, Any]
    ) -> Transcription:
        return Transcription(
            self._engine, _source(audio), _plain(options), seconds(timeout)
        )

    def transcribe(
        self,
        audio: Audio,
        *,
        on_segment: OnSegment | None = None,
        timeout: float | None = None,
        **options: Unpack[TranscribeOptions],
    ) -> Transcript:
        """Transcribes a file, its bytes, or samples.

        `on_segment` is called with each segment as it comes, on this thread;
        what it raises ends the transcription and is raised here, as what Ctrl-C
        raises. `timeout` is in seconds.
        """
        running = self._start(audio, timeout, options)
        try:
            while (transcript := _take(running, on_segment)) is None:
                running.wait(3600)
            return transcript
        finally:
            running.cancel()

    async def atranscribe(
        self,
        audio: Audio,
        *,
        on_segment: OnSegment | None = None,
        timeout: float | None = None,
        **options: Unpack[TranscribeOptions],
    ) -> Transcript:
        """As `transcribe`, in a running event loop, on which `on_segment` is
        called. Where the task is cancelled, the transcription ends."""
        import asyncio

        loop = asyncio.get_running_loop()
        running = self._start(audio, timeout, options)
        done: asyncio.Future[Transcript] = loop.create_future()

        def take() -> None:
            if done.done():
                return
            try:
                transcript = _take(running, on_segment)
            except Exception as error:
                done.set_exception(error)
            else:
                if transcript is not None:
                    done.set_result(transcript)

        loop.add_reader(running.fileno(), take)
        try:
            return await done
        finally:
            loop.remove_reader(running.fileno())
            running.cancel()

    def stats(self) -> dict[str, int]:
        """Counters since the Transcriber was made."""
        return self._engine.stats()

    def metrics(self) -> str:
        """All of them, in the text of Prometheus (docs/metrics.md)."""
        return self._engine.metrics()

    def close(self) -> None:
        """Ends what runs, with CancelledError, and frees the model. Done by
        itself where the Transcriber is no longer referred to, and at exit."""
        self._engine.close()

    def __enter__(self) -> Transcriber:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._engine.is_closed else ""
        return f"Transcriber({self.directory!r}{closed})"

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Transcriber cannot be pickled; make one in each process, of the same "
            "directory"
        )


__all__ = ["Audio", "TranscribeOptions", "Transcriber"]

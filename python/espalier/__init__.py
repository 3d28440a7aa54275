"""espalier: beam search and parallel sampling for language models.

>>> import espalier
>>> llm = espalier.LLM("models/en-fr")
>>> answers = llm.generate(["How old are you?"], num_beams=4)
>>> answers[0].outputs[0].text

docs/python.md has the whole of it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._espalier import (
    ChatPrompt,
    CompletionOutput,
    ContinuationScore,
    RequestOutput,
    StreamPiece,
)
from .errors import (
    CancelledError,
    EspalierError,
    InvalidArgument,
    NeverFits,
    NotFound,
    Overloaded,
    TimeoutError,
    Unavailable,
)
from .llm import LLM, Stream, Tokenizer
from .results import Logprob

if TYPE_CHECKING:
    from .asyncio import AsyncStream
    from .transcriber import TranscribeOptions, Transcriber
    from .transcripts import (
        Transcript,
        TranscriptAlternative,
        TranscriptSegment,
        TranscriptWindow,
        TranscriptWord,
    )

__all__ = [
    "LLM",
    "AsyncStream",
    "CancelledError",
    "ChatPrompt",
    "CompletionOutput",
    "ContinuationScore",
    "EspalierError",
    "InvalidArgument",
    "Logprob",
    "NeverFits",
    "NotFound",
    "Overloaded",
    "RequestOutput",
    "Stream",
    "StreamPiece",
    "TimeoutError",
    "Tokenizer",
    "TranscribeOptions",
    "Transcriber",
    "Transcript",
    "TranscriptAlternative",
    "TranscriptSegment",
    "TranscriptWindow",
    "TranscriptWord",
    "Unavailable",
]


def __getattr__(name: str) -> Any:
    # asyncio and dataclasses take longer to import than all of this.
    if name == "AsyncStream":
        from .asyncio import AsyncStream

        return AsyncStream
    if name in ("TranscribeOptions", "Transcriber"):
        return getattr(importlib.import_module("espalier.transcriber"), name)
    if name.startswith("Transcript") and name in __all__:
        return getattr(importlib.import_module("espalier.transcripts"), name)
    if name in ("ctranslate2", "hf", "vllm"):
        return importlib.import_module(f"espalier.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version("espalier")
    raise AttributeError(f"module 'espalier' has no attribute {name!r}")

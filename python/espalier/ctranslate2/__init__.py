"""CTranslate2's Translator and Generator over an espalier engine:

>>> import espalier.ctranslate2 as ctranslate2
>>> translator = ctranslate2.Translator("directory")
>>> translator.translate_batch([["▁Hello", "▁world", "</s>"]], beam_size=4)

Names, defaults and results are CTranslate2's, of tokens as strings. A directory is
one of its converters or of transformers (docs/models.md). Requests of all calls run
together, so `max_batch_size` and `batch_type` are checked and change nothing.

Beam search is CTranslate2's (docs/groups.md), token for token, with these
differences:

- the length that divides a score counts a `target_prefix` of one token, but no longer
  prefix and no prompt;
- a hypothesis may end right after the prefix;
- `repetition_penalty` and `no_repeat_ngram_size` see the decoder's start, as in
  transformers;
- a limit beyond the model's context is the context.

Samples are drawn from the same distribution by other random numbers.
"""

from .models import Generator, Translator
from .options import GenerationOptions, TranslationOptions
from .results import (
    GenerationResult,
    GenerationStepResult,
    ScoringResult,
    TranslationResult,
)
from .running import AsyncResult

__all__ = [
    "AsyncResult",
    "GenerationOptions",
    "GenerationResult",
    "GenerationStepResult",
    "Generator",
    "ScoringResult",
    "TranslationOptions",
    "TranslationResult",
    "Translator",
]

"""The arguments of calls, with CTranslate2's names and defaults, and the params of
requests (docs/request_format.md) that they stand for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Union

from ..errors import invalid

Tokens = Sequence[str]
EndToken = Union[str, Sequence[str], Sequence[int], None]

_BOUNDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "max_batch_size": (lambda size: size >= 0, "at least 0"),
    "batch_type": (lambda kind: kind in ("examples", "tokens"), "examples or tokens"),
    "beam_size": (lambda size: size >= 1, "at least 1"),
    "patience": (lambda patience: patience > 0, "above 0"),
    "num_hypotheses": (lambda count: count >= 1, "at least 1"),
    "repetition_penalty": (lambda penalty: penalty > 0, "above 0"),
    "sampling_topk": (lambda k: k >= 0, "at least 0"),
    "sampling_topp": (lambda p: 0 < p <= 1, "in (0, 1]"),
    "max_input_length": (lambda length: length >= 0, "at least 0"),
    "max_decoding_length": (lambda length: length >= 1, "at least 1"),
    "max_length": (lambda length: length >= 1, "at least 1"),
    "offset": (lambda offset: offset >= 0, "at least 0"),
}


def check_bounds(**arguments: Any) -> None:
    """Raises InvalidArgument for the first argument beyond its bounds."""
    for name, value in arguments.items():
        if name in _BOUNDS and not _BOUNDS[name][0](value):
            raise invalid(name, f"must be {_BOUNDS[name][1]}", value)


def refuse_others(**arguments: tuple[Any, Any]) -> None:
    """Refuses arguments without their defaults; name=(value, default)."""
    for name, (value, default) in arguments.items():
        if value != default:
            raise invalid(name, "is not supported", value)


@dataclass
class SearchOptions:
    """What both models take. Raises InvalidArgument naming the argument."""

    max_batch_size: int = 0
    batch_type: str = "examples"
    beam_size: int = 1
    patience: float = 1
    num_hypotheses: int = 1
    length_penalty: float = 1
    repetition_penalty: float = 1
    no_repeat_ngram_size: int = 0
    disable_unk: bool = False
    suppress_sequences: Sequence[Tokens] | None = None
    end_token: EndToken = None
    return_end_token: bool = False
    return_scores: bool = False
    sampling_topk: int = 1
    sampling_topp: float = 1
    sampling_temperature: float = 1
    # Not supported: refused unless they have these defaults.
    return_logits_vocab: bool = False
    return_alternatives: bool = False
    min_alternative_expansion_prob: float = 0

    _unsupported: ClassVar[set[str]] = {
        "return_logits_vocab",
        "return_alternatives",
        "min_alternative_expansion_prob",
    }
    # The arguments that limit the length of an output, from below and above.
    _lengths: ClassVar[tuple[str, str]]

    def __post_init__(self) -> None:
        for argument in fields(self):
            value = getattr(self, argument.name)
            check_bounds(**{argument.name: value})
            if argument.name in self._unsupported:
                refuse_others(**{argument.name: (value, argument.default)})
        least, most = (getattr(self, name) for name in self._lengths)
        if not 0 <= least <= most:
            raise invalid(self._lengths[0], f"must be in [0, {most}]", least)

    def params(self) -> dict[str, Any]:
        """Params but for tokens and lengths."""
        params: dict[str, Any] = {
            "num_beams": self.beam_size,
            "num_return_sequences": self.num_hypotheses,
            "repetition_penalty": self.repetition_penalty,
            "no_repeat_ngram_size": self.no_repeat_ngram_size,
            # What may not come is taken out before the softmax there.
            "renormalize_logits": True,
        }
        is_sampled = self.sampling_topk != 1 and self.sampling_temperature != 0
        if is_sampled and self.beam_size > 1:
            raise invalid("sampling_topk", "must be 1 with beams", self.sampling_topk)
        if is_sampled:
            return params | {
                "do_sample": True,
                "top_k": self.sampling_topk,
                "top_p": self.sampling_topp,
                "temperature": self.sampling_temperature,
            }
        if self.beam_size == 1:
            return params
        params["length_penalty"] = self.length_penalty
        if self.length_penalty != 0:
            return params | {"early_stopping": True, "patience": self.patience}
        # The search ends there when its best beam does: the best hypothesis of
        # all, beside others that depend on when that was.
        if self.num_hypotheses > 1:
            raise invalid(
                "num_hypotheses", "must be 1 with length_penalty 0", self.num_hypotheses
            )
        return params | {"early_stopping": "never"}

    def length_params(self, before: int, room: int) -> dict[str, int] | None:
        """Params of what follows the `before` tokens that count in both limits,
        and for which a context has `room`; None if nothing may follow."""
        least, most = (getattr(self, name) for name in self._lengths)
        if most <= before:
            return None
        return {
            "max_new_tokens": min(most - before, max(1, room)),
            "min_new_tokens": max(0, least - before),
        }

    def score(self, log_prob: float, length: int) -> float:
        """The score of a greedy search or a sample."""
        return log_prob / math.pow(max(length, 1), self.length_penalty)


@dataclass
class TranslationOptions(SearchOptions):
    """Arguments of Translator.translate_batch."""

    beam_size: int = 2
    max_input_length: int = 1024
    max_decoding_length: int = 256
    min_decoding_length: int = 1
    # Not supported, as above.
    coverage_penalty: float = 0
    prefix_bias_beta: float = 0
    use_vmap: bool = False
    return_attention: bool = False
    replace_unknowns: bool = False

    _unsupported = SearchOptions._unsupported | {
        "coverage_penalty",
        "prefix_bias_beta",
        "use_vmap",
        "return_attention",
        "replace_unknowns",
    }
    _lengths = ("min_decoding_length", "max_decoding_length")


@dataclass
class GenerationOptions(SearchOptions):
    """Arguments of Generator.generate_batch. Prompts that begin alike share their
    pages, static or not."""

    max_length: int = 512
    min_length: int = 0
    static_prompt: Tokens | None = None
    cache_static_prompt: bool = True
    include_prompt_in_result: bool = True

    _lengths = ("min_length", "max_length")

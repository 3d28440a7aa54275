"""CTranslate2's Translator and Generator over an espalier engine:

>>> import espalier.ctranslate2 as ctranslate2
>>> translator = ctranslate2.Translator("directory")
>>> translator.translate_batch([["▁Hello", "▁world", "</s>"]], beam_size=4)

Names, defaults and results are CTranslate2's, of tokens as strings. A directory is
one of its converters or of transformers (docs/models.md). Requests of all calls run
together, so `max_batch_size` and `batch_type` are checked and change nothing.

Beam search is CTranslate2's (docs/groups.md), token for token, but that the length
which divides a score counts a `target_prefix` of one token, and no longer prefix and
no prompt; that a hypothesis may end right after the prefix; that repetition_penalty
and no_repeat_ngram_size are transformers' and see the decoder's start; and that a
limit beyond the model's context is the context. Samples are drawn from the same
distribution by other random numbers. An argument that is not supported is refused by
its name, unless it has its default.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Generic, NoReturn, TypeVar, Union

from ._espalier import Requests, RequestOutput
from .errors import InvalidArgument
from .llm import LLM
from .params import parse

__all__ = [
    "AsyncResult",
    "GenerationResult",
    "GenerationStepResult",
    "Generator",
    "ScoringResult",
    "TranslationResult",
    "Translator",
]

Tokens = Sequence[str]
EndToken = Union[str, Sequence[str], Sequence[int], None]
Callback = Callable[["GenerationStepResult"], bool]
_Result = TypeVar("_Result")


@dataclass
class TranslationResult:
    """The hypotheses of a source, best first."""

    hypotheses: list[list[str]]
    #: Empty unless `return_scores`.
    scores: list[float] = field(default_factory=list)


@dataclass
class GenerationResult:
    """The sequences of a prompt, best first."""

    sequences: list[list[str]]
    sequences_ids: list[list[int]]
    #: Empty unless `return_scores`.
    scores: list[float] = field(default_factory=list)


@dataclass
class ScoringResult:
    """Log-probabilities, in nats, of given tokens."""

    tokens: list[str]
    log_probs: list[float]


@dataclass
class GenerationStepResult:
    """A token of a greedy search or a sample, as it comes."""

    step: int
    batch_id: int
    token_id: int
    hypothesis_id: int
    token: str
    #: Nats; None unless asked for.
    log_prob: float | None
    is_last: bool


def _as_steps(_: GenerationStepResult) -> bool:
    """The callback that makes a call return its steps instead of results."""
    return False


class AsyncResult(Generic[_Result]):
    """A result that is to come. Where all those of a call are dropped, what runs
    of it ends."""

    def __init__(
        self, batch: _Batch, index: int, make: Callable[[Any], _Result]
    ) -> None:
        self._batch = batch
        self._index = index
        self._make = make

    def done(self) -> bool:
        """True if `result` does not wait."""
        return self._batch.is_done(self._index)

    def result(self) -> _Result:
        """Waits for it. Raises as `LLM.generate` does."""
        return self._make(self._batch.wait(self._index))


@dataclass
class _Hypothesis:
    ids: list[int]
    score: float


@dataclass
class _Example:
    """A prompt, and the params of its request; without params it is not run, and
    its output is `prefix`."""

    ids: list[int]
    params: dict[str, Any] | None
    #: What stands before the generated tokens of an output.
    prefix: list[int]


class _Batch:
    """The running requests of one call, for which any thread may wait."""

    def __init__(self, llm: LLM, examples: Sequence[_Example]) -> None:
        self._changed = threading.Condition()
        self._is_watched = False  # by a thread that waits, and tells the others
        self._requests = Requests()
        self._answers: dict[int, RequestOutput | BaseException | None] = {}
        parsed = [None if e.params is None else parse(e.params, {}) for e in examples]
        for i, (example, params) in enumerate(zip(examples, parsed)):
            if params is None:
                self._answers[i] = None
            else:
                self._requests.submit(llm._engine, i, example.ids, params, math.inf)

    def _take(self) -> None:
        for i, _, answer in self._requests.take():
            self._answers[i] = answer

    def is_done(self, index: int) -> bool:
        with self._changed:
            if not self._is_watched:
                self._take()
            return index in self._answers

    def wait(self, index: int) -> RequestOutput | None:
        with self._changed:
            while index not in self._answers:
                if self._is_watched:
                    self._changed.wait()
                else:
                    self._watch()
            answer = self._answers[index]
        if isinstance(answer, BaseException):
            _raise(answer, index)
        return answer

    def _watch(self) -> None:
        self._is_watched = True
        self._changed.release()
        try:
            self._requests.wait(3600)
        finally:
            self._changed.acquire()
            self._is_watched = False
            self._take()
            self._changed.notify_all()


def _raise(error: BaseException, index: int) -> NoReturn:
    """Raises the error of an example, which may be raised again."""
    note = f"example {index}"
    if sys.version_info >= (3, 11) and note not in getattr(error, "__notes__", ()):
        error.add_note(note)
    raise error.with_traceback(None)


def _refuse_others(**arguments: tuple[Any, Any]) -> None:
    """Refuses arguments without their defaults; name=(value, default)."""
    for name, (value, default) in arguments.items():
        if value != default:
            raise ValueError(f"{name} is not supported, got {value!r}")


def _check_batches(max_batch_size: int, batch_type: str) -> None:
    if max_batch_size < 0:
        raise ValueError(f"max_batch_size must be at least 0, got {max_batch_size}")
    if batch_type not in ("examples", "tokens"):
        raise ValueError(
            f'batch_type must be "examples" or "tokens", got {batch_type!r}'
        )


def _as_many(values: Sequence[Any] | None, count: int, name: str) -> Sequence[Any]:
    if values is None:
        return [None] * count
    if len(values) != count:
        raise ValueError(f"{name} must have {count} entries, got {len(values)}")
    return values


@dataclass
class _Search:
    """The arguments that say how to search or to draw."""

    beam_size: int
    patience: float
    num_hypotheses: int
    length_penalty: float
    repetition_penalty: float
    no_repeat_ngram_size: int
    sampling_topk: int
    sampling_topp: float
    sampling_temperature: float

    def __post_init__(self) -> None:
        _check("beam_size", self.beam_size, self.beam_size >= 1, "at least 1")
        _check("patience", self.patience, self.patience > 0, "above 0")
        _check(
            "num_hypotheses",
            self.num_hypotheses,
            self.num_hypotheses >= 1,
            "at least 1",
        )
        _check(
            "repetition_penalty",
            self.repetition_penalty,
            self.repetition_penalty > 0,
            "above 0",
        )
        _check(
            "sampling_topk", self.sampling_topk, self.sampling_topk >= 0, "at least 0"
        )
        _check(
            "sampling_topp",
            self.sampling_topp,
            0 < self.sampling_topp <= 1,
            "in (0, 1]",
        )

    def params(self) -> dict[str, Any]:
        """The params of a request (docs/request_format.md)."""
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
            raise ValueError(
                f"sampling_topk must be 1 with beams, got {self.sampling_topk}"
            )
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
            raise ValueError(
                f"length_penalty 0 needs num_hypotheses 1, got {self.num_hypotheses}"
            )
        return params | {"early_stopping": "never"}

    def score(self, log_prob: float, length: int) -> float:
        return log_prob / math.pow(max(length, 1), self.length_penalty)


def _check(name: str, value: Any, is_right: bool, bounds: str) -> None:
    if not is_right:
        error = InvalidArgument(f"{name} must be {bounds}, got {value}")
        error.field, error.value = name, str(value)
        raise error


def _lengths(
    least: tuple[str, int], most: tuple[str, int], before: int, room: int
) -> dict[str, int] | None:
    """The limits of what follows the `before` tokens that count in both, and for
    which a context has `room`; None if nothing may follow. Each has its name."""
    _check(*most, most[1] >= 1, "at least 1")
    _check(*least, 0 <= least[1] <= most[1], f"in [0, {most[1]}], that is {most[0]}")
    if most[1] <= before:
        return None
    return {
        "max_new_tokens": min(most[1] - before, max(1, room)),
        "min_new_tokens": max(0, least[1] - before),
    }


def _json_of(directory: str, name: str) -> Any:
    try:
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


class _Vocabulary:
    """The tokens of a directory: those of its converter's file, or the pieces of
    its tokenizer."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._config: dict[str, Any] = _json_of(llm.directory, "config.json") or {}
        self._tokens = self._of_file()
        self._ids = {token: i for i, token in enumerate(self._tokens or ())}
        self.ends: list[int] = llm.model["eos_token_ids"]
        self.bos: int | None
        self.unk: int | None
        if self._tokens is None:
            self.bos = llm.tokenizer.bos_token_id
            self.unk = llm.tokenizer.unk_token_id
        else:
            self.bos = self._ids.get(self._config.get("bos_token", "<s>"))
            self.unk = self._ids.get(self._config.get("unk_token", "<unk>"))

    def _of_file(self) -> list[str] | None:
        if not os.path.exists(os.path.join(self._llm.directory, "model.bin")):
            return None
        for name in ("shared_vocabulary", "vocabulary"):
            tokens = _json_of(self._llm.directory, f"{name}.json")
            if tokens is not None:
                return list(tokens)
            path = os.path.join(self._llm.directory, f"{name}.txt")
            if os.path.exists(path):
                with open(path, encoding="utf-8", newline="\n") as file:
                    return [line.removesuffix("\n") for line in file]
        return None

    def names(self, ids: Sequence[int]) -> list[str]:
        if self._tokens is None:
            return self._llm.tokenizer.convert_ids_to_tokens(ids)
        return [self._tokens[i] for i in ids]

    def ids(self, tokens: Tokens, name: str, *, allow_unk: bool = True) -> list[int]:
        """The ids of the tokens of an argument, unknown ones as the token for
        these.

        Raises InvalidArgument where there is none, or without `allow_unk`.
        """
        if isinstance(tokens, str):
            raise TypeError(f"{name} must be lists of tokens, got {tokens!r}")
        unk = self.unk if allow_unk else None
        ids = []
        for token in tokens:
            known = (
                self._llm.tokenizer.convert_tokens_to_ids(token)
                if self._tokens is None
                else self._ids.get(token)
            )
            if known is None and unk is None:
                error = InvalidArgument(f"{name} has an unknown token, got {token!r}")
                error.field, error.value = name, token
                raise error
            ids.append(unk if known is None else known)
        return ids  # type: ignore[return-value]

    def source_ids(self, tokens: Tokens, max_length: int) -> list[int]:
        """The input of an encoder, cut to `max_length` tokens unless that is 0,
        with those that the directory's configuration puts around it."""
        before = [self.bos] if self._config.get("add_source_bos") else []
        after = self.ends[:1] if self._config.get("add_source_eos") else []
        ids: list[Any] = self.ids(tokens, "source")
        _check("max_input_length", max_length, max_length >= 0, "at least 0")
        if max_length > 0:
            ids = ids[: max(0, max_length - len(before) - len(after))]
        return before + ids + after

    def has_text(self, tokens: Tokens) -> bool:
        """False of a source of nothing but what stands around texts."""
        ids = self.ids(tokens, "source")
        around = {self.bos, *self.ends}
        if len(ids) >= 2 and ids[-2] in self.ends and ids[-1] not in self.ends:
            ids = ids[:-2]  # a language stands last
        return any(token not in around for token in ids)

    def end_ids(self, end_token: EndToken) -> list[int]:
        if end_token is None:
            return self.ends
        if isinstance(end_token, str):
            end_token = [end_token]
        return [
            (
                token
                if isinstance(token, int)
                else self.ids([token], "end_token", allow_unk=False)[0]
            )
            for token in end_token
        ]


_COMPUTE_TYPES = {
    "default": ("", "stored"),
    "auto": ("", "stored"),
    "float32": ("f32", "stored"),
    "float16": ("f16", "stored"),
    "bfloat16": ("bf16", "stored"),
    "int8": ("", "int8"),
    "int8_float32": ("f32", "int8"),
    "int8_float16": ("f16", "int8"),
    "int8_bfloat16": ("bf16", "int8"),
}


class _Model:
    """A directory and its engine."""

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        device: str = "cpu",
        *,
        device_index: int = 0,
        compute_type: str | Mapping[str, str] = "default",
        inter_threads: int = 1,
        intra_threads: int = 0,
        max_queued_batches: int = 0,
        flash_attention: bool = False,
        tensor_parallel: bool = False,
        files: Any = None,
        **options: Any,
    ) -> None:
        """Loads a directory, for one engine of `inter_threads * intra_threads`
        threads, whose queue has room for all calls. `options` are those of
        espalier.LLM which no argument here stands for."""
        _refuse_others(
            flash_attention=(flash_attention, False),
            tensor_parallel=(tensor_parallel, False),
            files=(files, None),
            max_queued_batches=(max(max_queued_batches, 0), 0),
        )
        _check("inter_threads", inter_threads, inter_threads >= 1, "at least 1")
        _check("intra_threads", intra_threads, intra_threads >= 0, "at least 0")
        if not isinstance(device_index, int):
            raise ValueError(f"device_index must be one number, got {device_index!r}")
        if not isinstance(compute_type, str):
            compute_type = compute_type.get(device, "default")
        if compute_type not in _COMPUTE_TYPES:
            raise ValueError(
                f"compute_type must be one of {', '.join(_COMPUTE_TYPES)}, got "
                f"{compute_type!r}"
            )
        dtype, weights = _COMPUTE_TYPES[compute_type]
        self.device = device
        self.device_index = [device_index]
        self.compute_type = compute_type
        #: The espalier.LLM beneath.
        self.llm = LLM(
            model_path,
            device=f"cuda:{device_index}" if device == "cuda" else device,
            dtype=dtype,
            weights=weights,
            num_threads=inter_threads * intra_threads,
            generation_config="none",
            **options,
        )
        self._vocabulary = _Vocabulary(self.llm)
        config = _json_of(self.llm.directory, "generation_config.json") or {}
        # Tokens that a Marian model was not trained to leave out.
        self._banned: list[list[int]] = config.get("bad_words_ids") or []

    def _params(
        self,
        search: _Search,
        disable_unk: bool,
        suppress_sequences: Sequence[Tokens] | None,
        end_token: EndToken,
        has_log_probs: bool,
    ) -> dict[str, Any]:
        suppressed = [
            self._vocabulary.ids(tokens, "suppress_sequences", allow_unk=False)
            for tokens in suppress_sequences or ()
            if tokens
        ]
        # A bad word that ends the search is none here.
        tokens = [sequence[0] for sequence in suppressed if len(sequence) == 1]
        if disable_unk and self._vocabulary.unk is not None:
            tokens.append(self._vocabulary.unk)
        params = search.params() | {
            "eos_token_id": self._vocabulary.end_ids(end_token),
            "bad_words_ids": self._banned + [s for s in suppressed if len(s) != 1],
            "suppress_tokens": tokens,
        }
        if has_log_probs:
            params |= {"logprobs": 0, "logprobs_mode": "processed_logprobs"}
        return params

    def _run(
        self,
        examples: list[_Example],
        search: _Search,
        make: Callable[[int, list[_Hypothesis]], _Result],
        asynchronous: bool,
        callback: Callback | None,
    ) -> list[Any]:
        """Runs examples, and makes a result of the hypotheses of each."""
        if callback is _as_steps:
            return _Steps(self.llm, self._vocabulary, examples, 1)  # type: ignore
        if callback is not None:
            if asynchronous or search.beam_size > 1:
                raise ValueError(
                    "callback needs beam_size 1 and asynchronous False, got "
                    f"{search.beam_size} and {asynchronous}"
                )
            return [
                make(i, found)
                for i, found in enumerate(self._watch(examples, search, callback))
            ]

        def make_of(i: int) -> Callable[[RequestOutput | None], _Result]:
            return lambda answer: make(i, _found(examples[i], search, answer))

        batch = _Batch(self.llm, examples)
        results = [AsyncResult(batch, i, make_of(i)) for i in range(len(examples))]
        return results if asynchronous else [result.result() for result in results]

    def _watch(
        self, examples: list[_Example], search: _Search, callback: Callback
    ) -> list[list[_Hypothesis]]:
        found = [
            [_Hypothesis([], 0.0) for _ in range(search.num_hypotheses)]
            for _ in examples
        ]
        steps = _Steps(self.llm, self._vocabulary, examples, search.num_hypotheses)
        for step in steps:
            hypothesis = found[step.batch_id][step.hypothesis_id]
            hypothesis.ids.append(step.token_id)
            hypothesis.score += step.log_prob or 0.0
            if callback(step):
                steps.stop(step.batch_id)
        for hypotheses in found:
            for hypothesis in hypotheses:
                hypothesis.score = search.score(hypothesis.score, len(hypothesis.ids))
            hypotheses.sort(key=lambda h: h.score, reverse=True)
        return found

    def _scores(
        self, prompts: list[list[int]], targets: list[list[int]], offset: int
    ) -> list[ScoringResult]:
        scored = [i for i, target in enumerate(targets) if target and prompts[i]]
        answers = self.llm.score(
            [prompts[i] for i in scored], [[targets[i]] for i in scored]
        )
        # Without a prompt nothing runs there, either.
        log_probs = [[0.0] * len(target) for target in targets]
        for i, (score,) in zip(scored, answers):
            log_probs[i] = score.logprobs
        return [
            ScoringResult(self._vocabulary.names(target[offset:]), own[offset:])
            for target, own in zip(targets, log_probs)
        ]


def _found(
    example: _Example, search: _Search, answer: RequestOutput | None
) -> list[_Hypothesis]:
    if answer is None:
        return [_Hypothesis(example.prefix, 0.0)] * search.num_hypotheses
    found = []
    for output in answer.outputs:
        ids = example.prefix + output.token_ids
        score = output.score
        if search.beam_size == 1:
            score = search.score(output.cumulative_logprob, len(ids))
        found.append(_Hypothesis(ids, score))
    return sorted(found, key=lambda h: h.score, reverse=True)


class _Steps(Iterator[GenerationStepResult]):
    """The tokens of greedy searches and samples, as they come."""

    def __init__(
        self,
        llm: LLM,
        vocabulary: _Vocabulary,
        examples: Sequence[_Example],
        num_hypotheses: int,
    ) -> None:
        self._vocabulary = vocabulary
        self._lock = threading.Lock()
        self._requests = Requests()
        self._ready: deque[GenerationStepResult | tuple[int, BaseException]] = deque()
        self._counts: dict[tuple[int, int], int] = {}
        self._stopped: set[int] = set()
        parsed = [None if e.params is None else parse(e.params, {}) for e in examples]
        for i, (example, params) in enumerate(zip(examples, parsed)):
            for sample in range(num_hypotheses):
                has_logs = "logprobs" in (example.params or ())
                zeros = [0.0] * len(example.prefix) if has_logs else None
                self._append(i, sample, example.prefix, zeros, params is None)
            if params is not None:
                self._requests.stream(llm._engine, i, example.ids, params, math.inf)

    def stop(self, batch_id: int) -> None:
        """Ends the search of an example."""
        self._stopped.add(batch_id)
        self._requests.cancel(batch_id)

    def __next__(self) -> GenerationStepResult:
        if not self._lock.acquire(blocking=False):
            raise ValueError("another thread reads these steps")
        try:
            return self._next()
        finally:
            self._lock.release()

    def _next(self) -> GenerationStepResult:
        while True:
            while self._ready:
                step = self._ready.popleft()
                if isinstance(step, tuple):
                    _raise(step[1], step[0])
                if step.batch_id not in self._stopped:
                    return step
            if not len(self._requests):
                raise StopIteration
            self._requests.wait(3600)
            for i, pieces, answer in self._requests.take():
                for piece in pieces:
                    ids, logs = piece.token_ids, None
                    if piece.logprobs is not None:
                        logs = [
                            best[token].logprob
                            for token, best in zip(ids, piece.logprobs)
                        ]
                    ended = piece.finish_reason is not None
                    self._append(i, piece.sample, ids, logs, ended)
                if isinstance(answer, BaseException):
                    self._ready.append((i, answer))

    def _append(
        self,
        i: int,
        sample: int,
        ids: Sequence[int],
        log_probs: Sequence[float] | None,
        ended: bool,
    ) -> None:
        first = self._counts.get((i, sample), 0)
        self._counts[i, sample] = first + len(ids)
        for k, (token, name) in enumerate(zip(ids, self._vocabulary.names(ids))):
            self._ready.append(
                GenerationStepResult(
                    step=first + k,
                    batch_id=i,
                    token_id=token,
                    hypothesis_id=sample,
                    token=name,
                    log_prob=None if log_probs is None else log_probs[k],
                    is_last=ended and k == len(ids) - 1,
                )
            )


def _pairs(
    source: Iterable[Tokens], target: Iterable[Tokens]
) -> Iterator[tuple[Tokens, Tokens | None]]:
    for pair in zip_longest(source, target):
        if None in pair:
            raise ValueError("source and target_prefix must be of one length")
        yield pair


def _without(ids: list[int], ends: list[int]) -> list[int]:
    """Tokens without those at their end that end a search."""
    length = len(ids)
    while length > 0 and ids[length - 1] in ends:
        length -= 1
    return ids[:length]


class Translator(_Model):
    """A translator: an encoder-decoder."""

    def translate_batch(
        self,
        source: Sequence[Tokens],
        target_prefix: Sequence[Tokens | None] | None = None,
        *,
        max_batch_size: int = 0,
        batch_type: str = "examples",
        asynchronous: bool = False,
        beam_size: int = 2,
        patience: float = 1,
        num_hypotheses: int = 1,
        length_penalty: float = 1,
        coverage_penalty: float = 0,
        repetition_penalty: float = 1,
        no_repeat_ngram_size: int = 0,
        disable_unk: bool = False,
        suppress_sequences: Sequence[Tokens] | None = None,
        end_token: EndToken = None,
        return_end_token: bool = False,
        prefix_bias_beta: float = 0,
        max_input_length: int = 1024,
        max_decoding_length: int = 256,
        min_decoding_length: int = 1,
        use_vmap: bool = False,
        return_scores: bool = False,
        return_logits_vocab: bool = False,
        return_attention: bool = False,
        return_alternatives: bool = False,
        min_alternative_expansion_prob: float = 0,
        sampling_topk: int = 1,
        sampling_topp: float = 1,
        sampling_temperature: float = 1,
        replace_unknowns: bool = False,
        callback: Callback | None = None,
    ) -> list[Any]:
        """Translates sources: a TranslationResult of each, or an AsyncResult.

        `callback` gets the tokens of a greedy search or a sample as they come,
        and ends it by returning True. Raises as `LLM.generate` does.
        """
        _refuse_others(
            coverage_penalty=(coverage_penalty, 0),
            prefix_bias_beta=(prefix_bias_beta, 0),
            use_vmap=(use_vmap, False),
            return_logits_vocab=(return_logits_vocab, False),
            return_attention=(return_attention, False),
            return_alternatives=(return_alternatives, False),
            min_alternative_expansion_prob=(min_alternative_expansion_prob, 0),
            replace_unknowns=(replace_unknowns, False),
        )
        _check_batches(max_batch_size, batch_type)
        search = _Search(
            beam_size,
            patience,
            num_hypotheses,
            length_penalty,
            repetition_penalty,
            no_repeat_ngram_size,
            sampling_topk,
            sampling_topp,
            sampling_temperature,
        )
        params = self._params(
            search,
            disable_unk,
            suppress_sequences,
            end_token,
            return_scores and callback is not None,
        )
        ends = params["eos_token_id"]

        def make(_: int, found: list[_Hypothesis]) -> TranslationResult:
            return TranslationResult(
                [
                    self._vocabulary.names(
                        h.ids if return_end_token else _without(h.ids, ends)
                    )
                    for h in found
                ],
                [h.score for h in found] if return_scores else [],
            )

        prefixes = _as_many(target_prefix, len(source), "target_prefix")
        examples = [
            self._example(
                tokens,
                prefix,
                params,
                max_input_length,
                max_decoding_length,
                min_decoding_length,
            )
            for tokens, prefix in zip(source, prefixes)
        ]
        return self._run(examples, search, make, asynchronous, callback)

    def translate_iterable(
        self,
        source: Iterable[Tokens],
        target_prefix: Iterable[Tokens] | None = None,
        max_batch_size: int = 32,
        batch_type: str = "examples",
        **options: Any,
    ) -> Iterator[TranslationResult]:
        """Translates sources as they are read, in order, at most 16 *
        max_batch_size of them ahead; `options` are those of translate_batch."""
        _check("max_batch_size", max_batch_size, max_batch_size >= 1, "at least 1")
        _check_batches(max_batch_size, batch_type)
        pairs: Iterable[tuple[Tokens, Tokens | None]] = (
            ((tokens, None) for tokens in source)
            if target_prefix is None
            else _pairs(source, target_prefix)
        )
        running: deque[AsyncResult[TranslationResult]] = deque()
        for tokens, prefix in pairs:
            running += self.translate_batch(
                [tokens], [prefix], asynchronous=True, **options
            )
            while running and (len(running) > 16 * max_batch_size or running[0].done()):
                yield running.popleft().result()
        while running:
            yield running.popleft().result()

    def generate_tokens(
        self,
        source: Tokens,
        target_prefix: Tokens | None = None,
        *,
        return_log_prob: bool = False,
        **options: Any,
    ) -> Iterator[GenerationStepResult]:
        """Iterates over the tokens of a greedy search or a sample, as they come;
        leaving the iteration ends it. `options` are those of translate_batch."""
        return self.translate_batch(  # type: ignore[return-value]
            [source],
            None if target_prefix is None else [target_prefix],
            beam_size=1,
            return_scores=return_log_prob,
            callback=_as_steps,
            **options,
        )

    def score_batch(
        self,
        source: Sequence[Tokens],
        target: Sequence[Tokens],
        *,
        max_batch_size: int = 0,
        batch_type: str = "examples",
        max_input_length: int = 1024,
        offset: int = 0,
        asynchronous: bool = False,
    ) -> list[ScoringResult]:
        """Log-probabilities of targets and of the EOS after them, without the
        first `offset` tokens."""
        _check_batches(max_batch_size, batch_type)
        _refuse_others(asynchronous=(asynchronous, False))
        _check("offset", offset, offset >= 0, "at least 0")
        targets = _as_many(target, len(source), "target")
        limit = max_input_length - 1 if max_input_length > 0 else None
        end = self._vocabulary.ends[:1]
        return self._scores(
            [self._vocabulary.source_ids(own, max_input_length) for own in source],
            [self._vocabulary.ids(own, "target")[:limit] + end for own in targets],
            offset,
        )

    def _example(
        self,
        source: Tokens,
        target_prefix: Tokens | None,
        params: dict[str, Any],
        max_input_length: int,
        max_decoding_length: int,
        min_decoding_length: int,
    ) -> _Example:
        prefix = self._vocabulary.ids(target_prefix or (), "target_prefix")
        ids = self._vocabulary.source_ids(source, max_input_length)
        if not self._vocabulary.has_text(source):
            return _Example(ids, None, prefix[:max_decoding_length])
        own = dict(params)
        # One that is forced counts in lengths, but what ends a search would end it.
        if len(prefix) == 1 and prefix[0] not in params["eos_token_id"]:
            own["forced_bos_token_id"], prefix = prefix[0], []
        elif prefix:
            own["decoder_prompt_tokens"] = prefix
        facts = self.llm.model
        lengths = _lengths(
            ("min_decoding_length", min_decoding_length),
            ("max_decoding_length", max_decoding_length),
            len(prefix),
            facts["max_context"] - len(facts["decoder_prompt"]) - len(prefix),
        )
        if lengths is None:
            return _Example(ids, None, prefix[:max_decoding_length])
        return _Example(ids, own | lengths, prefix)


class Generator(_Model):
    """A language model: a decoder."""

    def generate_batch(
        self,
        start_tokens: Sequence[Tokens],
        *,
        max_batch_size: int = 0,
        batch_type: str = "examples",
        asynchronous: bool = False,
        beam_size: int = 1,
        patience: float = 1,
        num_hypotheses: int = 1,
        length_penalty: float = 1,
        repetition_penalty: float = 1,
        no_repeat_ngram_size: int = 0,
        disable_unk: bool = False,
        suppress_sequences: Sequence[Tokens] | None = None,
        end_token: EndToken = None,
        return_end_token: bool = False,
        max_length: int = 512,
        min_length: int = 0,
        static_prompt: Tokens | None = None,
        cache_static_prompt: bool = True,
        include_prompt_in_result: bool = True,
        return_scores: bool = False,
        return_logits_vocab: bool = False,
        return_alternatives: bool = False,
        min_alternative_expansion_prob: float = 0,
        sampling_topk: int = 1,
        sampling_topp: float = 1,
        sampling_temperature: float = 1,
        callback: Callback | None = None,
    ) -> list[Any]:
        """Continues prompts: a GenerationResult of each, or an AsyncResult.

        Prompts that begin alike share their pages, static or not. `callback` as
        for `Translator.translate_batch`; of generated tokens alone. Raises as
        `LLM.generate` does.
        """
        _refuse_others(
            return_logits_vocab=(return_logits_vocab, False),
            return_alternatives=(return_alternatives, False),
            min_alternative_expansion_prob=(min_alternative_expansion_prob, 0),
        )
        _check_batches(max_batch_size, batch_type)
        search = _Search(
            beam_size,
            patience,
            num_hypotheses,
            length_penalty,
            repetition_penalty,
            no_repeat_ngram_size,
            sampling_topk,
            sampling_topp,
            sampling_temperature,
        )
        params = self._params(
            search,
            disable_unk,
            suppress_sequences,
            end_token,
            return_scores and callback is not None,
        )
        ends = params["eos_token_id"]
        static = self._vocabulary.ids(static_prompt or (), "static_prompt")
        params["prefix_cache"] = cache_static_prompt or not static
        room = int(self.llm.model["max_context"])
        examples = []
        for tokens in start_tokens:
            prompt = self._vocabulary.ids(tokens, "start_tokens")
            if not prompt:
                raise InvalidArgument("start_tokens must not be empty, got []")
            prefix = prompt[1:] if include_prompt_in_result else []
            lengths = _lengths(
                ("min_length", min_length),
                ("max_length", max_length),
                len(prefix),
                room - len(static) - len(prompt),
            )
            own = None if lengths is None else params | lengths
            examples.append(_Example(static + prompt, own, prefix[:max_length]))

        def make(i: int, found: list[_Hypothesis]) -> GenerationResult:
            first = self._vocabulary.ids(start_tokens[i][:1], "start_tokens")
            shown = include_prompt_in_result and first != [self._vocabulary.bos]
            ids = [
                (first if shown else [])
                + (h.ids if return_end_token else _without(h.ids, ends))
                for h in found
            ]
            return GenerationResult(
                [self._vocabulary.names(own) for own in ids],
                ids,
                [h.score for h in found] if return_scores else [],
            )

        return self._run(examples, search, make, asynchronous, callback)

    def generate_tokens(
        self,
        prompt: Tokens | Sequence[Tokens],
        max_batch_size: int = 0,
        batch_type: str = "examples",
        *,
        return_log_prob: bool = False,
        callback: Callback | None = None,
        **options: Any,
    ) -> Iterator[GenerationStepResult]:
        """Iterates over the tokens that continue one prompt or many, as they come;
        leaving the iteration ends them, and `callback` ends one. `options` are
        those of generate_batch."""
        is_one = len(prompt) > 0 and isinstance(prompt[0], str)
        steps: Any = self.generate_batch(
            [prompt] if is_one else prompt,  # type: ignore[list-item]
            max_batch_size=max_batch_size,
            batch_type=batch_type,
            include_prompt_in_result=False,
            return_scores=return_log_prob,
            callback=_as_steps,
            **options,
        )

        def watched(given: Callback) -> Iterator[GenerationStepResult]:
            for step in steps:
                if given(step):
                    steps.stop(step.batch_id)
                yield step

        return steps if callback is None else watched(callback)

    def score_batch(
        self,
        tokens: Sequence[Tokens],
        *,
        max_batch_size: int = 0,
        batch_type: str = "examples",
        max_input_length: int = 1024,
        asynchronous: bool = False,
    ) -> list[ScoringResult]:
        """Log-probabilities of all tokens but the first."""
        _check_batches(max_batch_size, batch_type)
        _refuse_others(asynchronous=(asynchronous, False))
        limit = max_input_length or None
        ids = [self._vocabulary.ids(own, "tokens")[:limit] for own in tokens]
        return self._scores([own[:1] for own in ids], [own[1:] for own in ids], 0)

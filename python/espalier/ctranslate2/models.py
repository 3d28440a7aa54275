"""Translator and Generator: a directory, its engine, and what is made of answers."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

from .._espalier import RequestOutput
from ..errors import invalid
from ..llm import LLM
from .options import (
    GenerationOptions,
    SearchOptions,
    Tokens,
    TranslationOptions,
    check_bounds,
    refuse_others,
)
from .results import (
    GenerationResult,
    GenerationStepResult,
    ScoringResult,
    TranslationResult,
)
from .running import AsyncResult, Batch, Example, Steps
from .vocabulary import Vocabulary, json_of

Callback = Callable[[GenerationStepResult], bool]
_Result = TypeVar("_Result")

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


class _Hypothesis(NamedTuple):
    ids: list[int]
    score: float


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
        refuse_others(
            flash_attention=(flash_attention, False),
            tensor_parallel=(tensor_parallel, False),
            files=(files, None),
            max_queued_batches=(max(max_queued_batches, 0), 0),
        )
        if inter_threads < 1:
            raise invalid("inter_threads", "must be at least 1", inter_threads)
        if intra_threads < 0:
            raise invalid("intra_threads", "must be at least 0", intra_threads)
        if not isinstance(device_index, int):
            raise invalid("device_index", "must be one number", device_index)
        if not isinstance(compute_type, str):
            compute_type = compute_type.get(device, "default")
        if compute_type not in _COMPUTE_TYPES:
            known = ", ".join(_COMPUTE_TYPES)
            raise invalid("compute_type", f"must be one of {known}", compute_type)
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
        self._vocabulary = Vocabulary(self.llm)
        config = json_of(self.llm.directory, "generation_config.json") or {}
        # Tokens that a Marian model was not trained to leave out.
        self._banned: list[list[int]] = config.get("bad_words_ids") or []

    def _params(self, options: SearchOptions, is_watched: bool) -> dict[str, Any]:
        """Params but for lengths; the tokens of a watched search are told with
        their log-probabilities, if the scores are asked for."""
        suppressed = [
            self._vocabulary.ids(tokens, "suppress_sequences", allow_unk=False)
            for tokens in options.suppress_sequences or ()
            if tokens
        ]
        # A bad word that ends the search is none here.
        tokens = [sequence[0] for sequence in suppressed if len(sequence) == 1]
        if options.disable_unk and self._vocabulary.unk is not None:
            tokens.append(self._vocabulary.unk)
        params = options.params() | {
            "eos_token_id": self._vocabulary.end_ids(options.end_token),
            "bad_words_ids": self._banned + [s for s in suppressed if len(s) != 1],
            "suppress_tokens": tokens,
        }
        if is_watched and options.return_scores:
            params |= {"logprobs": 0, "logprobs_mode": "processed_logprobs"}
        return params

    def _steps(self, examples: list[Example], options: SearchOptions) -> Steps:
        return Steps(self.llm, self._vocabulary, examples, options.num_hypotheses)

    def _run(
        self,
        examples: list[Example],
        options: SearchOptions,
        make: Callable[[int, list[_Hypothesis]], _Result],
        asynchronous: bool,
        callback: Callback | None,
    ) -> list[Any]:
        """Runs examples, and makes a result of the hypotheses of each."""
        if callback is not None:
            if asynchronous or options.beam_size > 1:
                raise invalid(
                    "callback",
                    "must be None with beams and with asynchronous",
                    callback,
                )
            found = self._watch(examples, options, callback)
            return [make(i, hypotheses) for i, hypotheses in enumerate(found)]

        def make_of(i: int) -> Callable[[RequestOutput | None], _Result]:
            return lambda answer: make(i, _found(examples[i], options, answer))

        batch = Batch(self.llm, examples)
        results = [AsyncResult(batch, i, make_of(i)) for i in range(len(examples))]
        return results if asynchronous else [result.result() for result in results]

    def _watch(
        self, examples: list[Example], options: SearchOptions, callback: Callback
    ) -> list[list[_Hypothesis]]:
        count = options.num_hypotheses
        ids: list[list[list[int]]] = [[[] for _ in range(count)] for _ in examples]
        sums = [[0.0] * count for _ in examples]
        steps = self._steps(examples, options)
        for step in steps:
            ids[step.batch_id][step.hypothesis_id].append(step.token_id)
            sums[step.batch_id][step.hypothesis_id] += step.log_prob or 0.0
            if callback(step):
                steps.stop(step.batch_id)
        return [
            _ranked(
                _Hypothesis(tokens, options.score(log_prob, len(tokens)))
                for tokens, log_prob in zip(own_ids, own_sums)
            )
            for own_ids, own_sums in zip(ids, sums)
        ]

    def _without_end(self, ids: list[int], options: SearchOptions) -> list[int]:
        """Tokens without those at their end that ended the search, unless these
        are asked for."""
        length = len(ids)
        if not options.return_end_token:
            ends = self._vocabulary.end_ids(options.end_token)
            while length > 0 and ids[length - 1] in ends:
                length -= 1
        return ids[:length]

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


def _ranked(hypotheses: Iterable[_Hypothesis]) -> list[_Hypothesis]:
    return sorted(hypotheses, key=lambda h: h.score, reverse=True)


def _found(
    example: Example, options: SearchOptions, answer: RequestOutput | None
) -> list[_Hypothesis]:
    if answer is None:
        return [_Hypothesis(example.prefix, 0.0)] * options.num_hypotheses
    found = []
    for output in answer.outputs:
        ids = example.prefix + output.token_ids
        score = output.score
        if options.beam_size == 1:
            score = options.score(output.cumulative_logprob, len(ids))
        found.append(_Hypothesis(ids, score))
    return _ranked(found)


def _as_many(values: Sequence[Any] | None, count: int, name: str) -> Sequence[Any]:
    if values is None:
        return [None] * count
    if len(values) != count:
        raise invalid(name, f"must have {count} entries", len(values))
    return values


class Translator(_Model):
    """A translator: an encoder-decoder."""

    def translate_batch(
        self,
        source: Sequence[Tokens],
        target_prefix: Sequence[Tokens | None] | None = None,
        *,
        asynchronous: bool = False,
        callback: Callback | None = None,
        **options: Any,
    ) -> list[Any]:
        """Translates sources: a TranslationResult of each, or an AsyncResult.

        `options` are those of TranslationOptions. `callback` gets the tokens of a
        greedy search or a sample as they come, and ends it by returning True.
        Raises as `LLM.generate` does.
        """
        parsed = TranslationOptions(**options)
        prefixes = _as_many(target_prefix, len(source), "target_prefix")

        def make(_: int, found: list[_Hypothesis]) -> TranslationResult:
            return TranslationResult(
                [
                    self._vocabulary.names(self._without_end(h.ids, parsed))
                    for h in found
                ],
                [h.score for h in found] if parsed.return_scores else [],
            )

        examples = self._examples(source, prefixes, parsed, callback is not None)
        return self._run(examples, parsed, make, asynchronous, callback)

    def translate_iterable(
        self,
        source: Iterable[Tokens],
        target_prefix: Iterable[Tokens] | None = None,
        max_batch_size: int = 32,
        **options: Any,
    ) -> Iterator[TranslationResult]:
        """Translates sources as they are read, in order, at most 16 *
        max_batch_size of them ahead; `options` are those of translate_batch."""
        if max_batch_size < 1:
            raise invalid("max_batch_size", "must be at least 1", max_batch_size)
        running: deque[AsyncResult[TranslationResult]] = deque()
        for tokens, prefix in _pairs(source, target_prefix):
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
        parsed = TranslationOptions(
            beam_size=1, return_scores=return_log_prob, **options
        )
        examples = self._examples([source], [target_prefix], parsed, True)
        return self._steps(examples, parsed)

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
        refuse_others(asynchronous=(asynchronous, False))
        check_bounds(
            max_batch_size=max_batch_size,
            batch_type=batch_type,
            max_input_length=max_input_length,
            offset=offset,
        )
        targets = _as_many(target, len(source), "target")
        limit = max_input_length - 1 if max_input_length > 0 else None
        end = self._vocabulary.ends[:1]
        return self._scores(
            [self._vocabulary.source_ids(own, max_input_length) for own in source],
            [self._vocabulary.ids(own, "target")[:limit] + end for own in targets],
            offset,
        )

    def _examples(
        self,
        source: Sequence[Tokens],
        prefixes: Sequence[Tokens | None],
        options: TranslationOptions,
        is_watched: bool,
    ) -> list[Example]:
        params = self._params(options, is_watched)
        facts = self.llm.model
        room = facts["max_context"] - len(facts["decoder_prompt"])
        examples = []
        for tokens, target_prefix in zip(source, prefixes):
            prefix = self._vocabulary.ids(target_prefix or (), "target_prefix")
            ids = self._vocabulary.source_ids(tokens, options.max_input_length)
            own = dict(params)
            # One that is forced counts in lengths, but what ends a search would
            # end it.
            if len(prefix) == 1 and prefix[0] not in params["eos_token_id"]:
                own["forced_bos_token_id"] = prefix[0]
                before: list[int] = []
            else:
                before = prefix
                if prefix:
                    own["decoder_prompt_tokens"] = prefix
            lengths = options.length_params(len(before), room - len(before))
            if lengths is None or not self._vocabulary.has_text(tokens):
                shown = prefix[: options.max_decoding_length]
                examples.append(Example(ids, None, shown))
            else:
                examples.append(Example(ids, own | lengths, before))
        return examples


def _pairs(
    source: Iterable[Tokens], target_prefix: Iterable[Tokens] | None
) -> Iterator[tuple[Tokens, Tokens | None]]:
    if target_prefix is None:
        yield from ((tokens, None) for tokens in source)
        return
    for pair in zip_longest(source, target_prefix):
        if None in pair:
            raise invalid("target_prefix", "must be as long as source", pair)
        yield pair


class Generator(_Model):
    """A language model: a decoder."""

    def generate_batch(
        self,
        start_tokens: Sequence[Tokens],
        *,
        asynchronous: bool = False,
        callback: Callback | None = None,
        **options: Any,
    ) -> list[Any]:
        """Continues prompts: a GenerationResult of each, or an AsyncResult.

        `options` are those of GenerationOptions. `callback` gets the tokens of a
        greedy search or a sample as they come, and ends it by returning True.
        Raises as `LLM.generate` does.
        """
        parsed = GenerationOptions(**options)

        def make(i: int, found: list[_Hypothesis]) -> GenerationResult:
            first = self._vocabulary.ids(start_tokens[i][:1], "start_tokens")
            if not parsed.include_prompt_in_result or first == [self._vocabulary.bos]:
                first = []
            ids = [first + self._without_end(h.ids, parsed) for h in found]
            return GenerationResult(
                [self._vocabulary.names(own) for own in ids],
                ids,
                [h.score for h in found] if parsed.return_scores else [],
            )

        examples = self._examples(start_tokens, parsed, callback is not None)
        return self._run(examples, parsed, make, asynchronous, callback)

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
        parsed = GenerationOptions(
            max_batch_size,
            batch_type,
            return_scores=return_log_prob,
            include_prompt_in_result=False,
            **options,
        )
        if parsed.beam_size != 1:
            raise invalid("beam_size", "must be 1 for tokens", parsed.beam_size)
        is_one = len(prompt) > 0 and isinstance(prompt[0], str)
        prompts: Any = [prompt] if is_one else prompt
        steps = self._steps(self._examples(prompts, parsed, True), parsed)

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
        refuse_others(asynchronous=(asynchronous, False))
        check_bounds(
            max_batch_size=max_batch_size,
            batch_type=batch_type,
            max_input_length=max_input_length,
        )
        limit = max_input_length or None
        ids = [self._vocabulary.ids(own, "tokens")[:limit] for own in tokens]
        return self._scores([own[:1] for own in ids], [own[1:] for own in ids], 0)

    def _examples(
        self,
        start_tokens: Sequence[Tokens],
        options: GenerationOptions,
        is_watched: bool,
    ) -> list[Example]:
        params = self._params(options, is_watched)
        static = self._vocabulary.ids(options.static_prompt or (), "static_prompt")
        params["prefix_cache"] = options.cache_static_prompt or not static
        room = int(self.llm.model["max_context"]) - len(static)
        examples = []
        for tokens in start_tokens:
            prompt = self._vocabulary.ids(tokens, "start_tokens")
            if not prompt:
                raise invalid("start_tokens", "must not be empty", tokens)
            prefix = prompt[1:] if options.include_prompt_in_result else []
            lengths = options.length_params(len(prefix), room - len(prompt))
            own = None if lengths is None else params | lengths
            examples.append(Example(static + prompt, own, prefix[: options.max_length]))
        return examples

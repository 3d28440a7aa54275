"""vLLM's offline classes over an espalier engine: `import espalier.vllm as vllm`.

`LLM`, `SamplingParams`, `BeamSearchParams` and their results have vLLM's names
and defaults. A field that is not supported is refused by its name.

Beam search is another definition here: vLLM divides by a length that counts the
prompt and leaves out the EOS, and searches until no beam lives; espalier is
transformers' beam search (docs/groups.md), so texts and orders may differ.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import llm as _llm
from ._espalier import CompletionOutput as _CompletionOutput
from ._espalier import RequestOutput as _RequestOutput
from .errors import invalid
from .results import Logprob

__all__ = [
    "LLM",
    "BeamSearchOutput",
    "BeamSearchParams",
    "BeamSearchSequence",
    "CompletionOutput",
    "RequestOutput",
    "SamplingParams",
]


def _refuse(name: str, value: Any) -> None:
    raise invalid(name, "is not supported", value)


@dataclass(kw_only=True)
class SamplingParams:
    """Parameters of samples, with vLLM's defaults."""

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logit_bias: Mapping[int, float] | None = None
    allowed_token_ids: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise invalid(
                "temperature", "must be at least 0 and finite", self.temperature
            )
        if self.top_k < -1:
            raise invalid("top_k", "must be at least -1", self.top_k)

    def to_request(self) -> dict[str, Any]:
        """The params of a request (docs/request_format.md)."""
        params: dict[str, Any] = {
            "num_return_sequences": self.n,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repetition_penalty": self.repetition_penalty,
            "min_new_tokens": self.min_tokens,
            "ignore_eos": self.ignore_eos,
            "skip_special_tokens": self.skip_special_tokens,
            "num_beams": 1,
        }
        if self.temperature > 0:
            params |= {
                "do_sample": True,
                "temperature": self.temperature,
                "top_p": self.top_p,
                "top_k": max(self.top_k, 0),  # -1 is off in vLLM, too
                "min_p": self.min_p,
            }
        else:
            params |= {"do_sample": False, "temperature": 1.0}
        if self.stop:
            params["stop"] = (
                [self.stop] if isinstance(self.stop, str) else list(self.stop)
            )
            params["include_stop"] = self.include_stop_str_in_output
        if self.logit_bias:
            params["logit_bias"] = {str(k): v for k, v in self.logit_bias.items()}
        named = {
            "seed": self.seed,
            "stop_token_ids": self.stop_token_ids,
            "bad_words": self.bad_words,
            "max_new_tokens": self.max_tokens,
            "logprobs": self.logprobs,
            "prompt_logprobs": self.prompt_logprobs,
            "allowed_token_ids": self.allowed_token_ids,
        }
        return params | {k: v for k, v in named.items() if v is not None}


@dataclass(kw_only=True)
class BeamSearchParams:
    """Parameters of a beam search, under vLLM's names."""

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False

    def to_request(self) -> dict[str, Any]:
        """The params of a request."""
        if self.temperature not in (0.0, 1.0):
            _refuse("temperature", self.temperature)
        if self.include_stop_str_in_output:
            _refuse("include_stop_str_in_output", True)
        return {
            "num_beams": self.beam_width,
            "num_return_sequences": self.beam_width,
            "max_new_tokens": self.max_tokens,
            "ignore_eos": self.ignore_eos,
            "length_penalty": self.length_penalty,
            "do_sample": False,
        }


@dataclass
class CompletionOutput:
    """One generated sequence."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str
    stop_reason: None = None


@dataclass
class RequestOutput:
    """The answer to one prompt."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: list[dict[int, Logprob] | None] | None
    outputs: list[CompletionOutput]
    finished: bool = True


@dataclass
class BeamSearchSequence:
    """One hypothesis; `tokens` has the prompt's, too."""

    tokens: list[int]
    cum_logprob: float
    text: str
    score: float
    finish_reason: str


@dataclass
class BeamSearchOutput:
    """The hypotheses of one prompt, best first."""

    sequences: list[BeamSearchSequence] = field(default_factory=list)


# vLLM has an EOS as "stop".
_REASONS = {"eos": "stop", "deadline": "length"}


def _reason_of(output: _CompletionOutput) -> str:
    return _REASONS.get(output.finish_reason, output.finish_reason)


# Options of vLLM's LLM under the names of espalier.LLM.
_OPTIONS = {
    "dtype": "dtype",
    "max_num_batched_tokens": "max_step_tokens",
    "max_num_seqs": "max_running",
    "block_size": "page_size",
    "enable_prefix_caching": "prefix_cache",
    "device": "device",
}
_DTYPES = {"auto": "", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}


class LLM:
    """vLLM's LLM, of a model directory.

    `llm` is the espalier.LLM beneath. Options other than vLLM's go to it under
    their own names (`kv_cache_mib`, `num_threads`, ...).
    """

    def __init__(self, model: str | os.PathLike[str], **options: Any) -> None:
        translated: dict[str, Any] = {}
        for name, value in options.items():
            if name == "dtype":
                value = _DTYPES.get(value, value)
            translated[_OPTIONS.get(name, name)] = value
        self.llm = _llm.LLM(model, **translated)
        self._num_requests = 0

    def get_tokenizer(self) -> _llm.Tokenizer:
        """The tokenizer."""
        return self.llm.tokenizer

    def generate(
        self,
        prompts: Any,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Samples of each prompt: a text, {"prompt": ...},
        {"prompt_token_ids": ...}, or a list of these."""
        return self._run(_prompts_of(prompts), sampling_params, use_tqdm)

    def chat(
        self,
        messages: Any,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[RequestOutput]:
        """Answers to a conversation, or to many."""
        if not messages:
            raise invalid("messages", "must not be empty", messages)
        many = messages if isinstance(messages[0], (list, tuple)) else [messages]
        rendered = [
            self.llm.render_chat(
                conversation,
                tools=tools,
                add_generation_prompt=(
                    None if continue_final_message else add_generation_prompt
                ),
                continue_final_message=continue_final_message,
                chat_template_kwargs=chat_template_kwargs,
            )
            for conversation in many
        ]
        return self._run(rendered, sampling_params, use_tqdm)

    def beam_search(
        self, prompts: Any, params: BeamSearchParams
    ) -> list[BeamSearchOutput]:
        """The `beam_width` best hypotheses of each prompt."""
        given = _prompts_of(prompts)
        answers = self.llm.generate(given, params.to_request())
        known = [self._tokens_of(prompt) for prompt in given]
        return [
            BeamSearchOutput(
                [
                    BeamSearchSequence(
                        tokens=tokens + output.token_ids,
                        cum_logprob=output.cumulative_logprob,
                        text=output.text,
                        score=output.score,
                        finish_reason=_reason_of(output),
                    )
                    for output in answer.outputs
                ]
            )
            for tokens, answer in zip(known, answers)
        ]

    def _run(
        self,
        prompts: list[Any],
        params: SamplingParams | Sequence[SamplingParams] | None,
        use_tqdm: bool,
    ) -> list[RequestOutput]:
        each = (
            [params or SamplingParams()] * len(prompts)
            if params is None or isinstance(params, SamplingParams)
            else list(params)
        )
        requests: Any = [own.to_request() for own in each]
        if len(each) == len(prompts):
            for prompt, own, request in zip(prompts, each, requests):
                if own.max_tokens is None:
                    request["max_new_tokens"] = self._room_after(prompt)
        answers = self.llm.generate(prompts, requests, use_tqdm=use_tqdm)
        return [self._output(p, a) for p, a in zip(prompts, answers)]

    def _output(self, prompt: Any, answer: _RequestOutput) -> RequestOutput:
        number = self._num_requests
        self._num_requests += 1
        return RequestOutput(
            request_id=str(number),
            prompt=prompt if isinstance(prompt, str) else None,
            prompt_token_ids=self._tokens_of(prompt),
            prompt_logprobs=answer.prompt_logprobs,
            outputs=[
                CompletionOutput(
                    index=output.index,
                    text=output.text,
                    token_ids=output.token_ids,
                    cumulative_logprob=output.cumulative_logprob,
                    logprobs=output.logprobs,
                    finish_reason=_reason_of(output),
                )
                for output in answer.outputs
            ],
        )

    def _room_after(self, prompt: Any) -> int:
        """vLLM's max_tokens None: as much as the context holds."""
        facts = self.llm.model
        known = (
            facts["decoder_prompt"] if facts["has_encoder"] else self._tokens_of(prompt)
        )
        return max(1, int(facts["max_context"]) - len(known))

    def _tokens_of(self, prompt: Any) -> list[int]:
        return self.llm.prompt_token_ids(prompt)


def _prompts_of(prompts: Any) -> list[Any]:
    many = [prompts] if isinstance(prompts, (str, Mapping)) else list(prompts)
    if many and isinstance(many[0], numbers.Integral):
        many = [many]
    made = []
    for prompt in many:
        if isinstance(prompt, Mapping):
            if "prompt_token_ids" in prompt:
                prompt = list(prompt["prompt_token_ids"])
            elif "prompt" in prompt:
                prompt = prompt["prompt"]
            else:
                raise invalid(
                    "prompts",
                    "must have `prompt` or `prompt_token_ids`",
                    sorted(prompt),
                )
        made.append(prompt)
    return made

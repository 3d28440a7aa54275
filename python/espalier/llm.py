"""LLM: a model directory and its engine, for any number of threads and event
loops."""

from __future__ import annotations

import json
import numbers
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union, overload

from ._espalier import (
    ChatPrompt,
    ContinuationScore,
    Engine,
    Params,
    RequestOutput,
    Requests,
    StreamPiece,
)
from .engines import close_at_exit, seconds
from .errors import invalid
from .params import parse

if TYPE_CHECKING:
    from .asyncio import AsyncStream

#: A text, token ids (a list, or an array of numpy or torch), or a conversation
#: that `LLM.render_chat` made.
Prompt = Union[str, Sequence[int], ChatPrompt, Any]
Message = Mapping[str, Any]


def _is_one(prompts: Any) -> bool:
    """True for one prompt, false for a list of them."""
    if isinstance(prompts, (str, ChatPrompt)):
        return True
    if hasattr(prompts, "ndim"):
        return bool(prompts.ndim == 1)
    if not isinstance(prompts, Sequence) or isinstance(prompts, bytes):
        raise TypeError(
            "a prompt must be a text or token ids, or a list of these, got "
            f"{type(prompts).__name__}"
        )
    return len(prompts) > 0 and isinstance(prompts[0], numbers.Integral)


def _plain_prompt(prompt: Any) -> Any:
    if isinstance(prompt, (str, ChatPrompt)):
        return prompt
    if hasattr(prompt, "tolist"):
        prompt = prompt.tolist()
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes):
        raise TypeError(
            f"a prompt must be a text or token ids, got {type(prompt).__name__}"
        )
    return prompt


def _in_host_memory(tensor: Any) -> Any:
    """Torch's tensors without a gradient, on the CPU, contiguous."""
    if hasattr(tensor, "detach"):
        return tensor.detach().cpu().contiguous()
    return tensor


def _raise_first(answers: list[Any]) -> None:
    for i, answer in enumerate(answers):
        if isinstance(answer, BaseException):
            if len(answers) > 1 and sys.version_info >= (3, 11):
                answer.add_note(f"prompts[{i}]")
            raise answer


class Tokenizer:
    """The model's tokenizer (docs/tokenizers.md)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        facts = engine.tokenizer_facts()
        self.vocab_size: int = facts["vocab_size"]
        self.bos_token_id: int | None = facts["bos_token_id"]
        self.eos_token_id: int | None = facts["eos_token_id"]
        self.pad_token_id: int | None = facts["pad_token_id"]
        self.unk_token_id: int | None = facts["unk_token_id"]

    def encode(
        self,
        text: str,
        *,
        add_special_tokens: bool = True,
        parse_special: bool = False,
    ) -> list[int]:
        """Token ids of a text. `parse_special` reads names of special tokens in
        it as those tokens, which is not for texts of users."""
        return list(self._engine.encode(text, add_special_tokens, parse_special))

    def decode(
        self, token_ids: Sequence[int], *, skip_special_tokens: bool = True
    ) -> str:
        """The text of tokens as a whole."""
        return self._engine.decode(_plain_prompt(token_ids), skip_special_tokens)

    def convert_ids_to_tokens(self, token_ids: Sequence[int]) -> list[str]:
        """The vocabulary's entries, such as "▁the"; "" where there is none."""
        return list(self._engine.pieces(_plain_prompt(token_ids)))

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """The id of a vocabulary's entry; None where there is none."""
        return self._engine.piece_to_id(token)


class LLM:
    """A model and its engine.

    >>> llm = espalier.LLM("models/en-fr")
    >>> llm.generate("How old are you?", num_beams=4)[0].outputs[0].text

    Requests of all threads and event loops run together, and give the same
    results as alone. `params` of a call are keywords, under the names of
    docs/request_format.md, or a dictionary, or a GenerationConfig of
    transformers; what they leave open is the model's generation_config.json.

    Errors are those of espalier.errors; a wrong request raises InvalidArgument
    before anything runs.
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
        max_candidates: int | None = None,
        max_score_edits: int | None = None,
        prefix_cache: bool = True,
        preempted_pages: str = "auto",
        prefill_share: float = 0.25,
        draft_model: str | os.PathLike[str] = "",
        speculate: str | bool | Mapping[str, Any] | None = None,
        generation_config: str | os.PathLike[str] = "auto",
        max_running: int = 256,
        max_waiting: int = 1_000_000,
        max_waiting_tokens: int = 0,
        items: Mapping[str, str | os.PathLike[str]] | None = None,
        step_timeout: float | None = None,
    ) -> None:
        """Loads a model directory (docs/models.md). Options are those of
        docs/cpp_api.md: `device` is "cpu", "cuda", "cuda:1" or "auto"; `items`
        are names of catalogues and their files; `speculate` is for requests
        that leave it open, in their format (docs/speculation.md)."""
        self._engine = Engine(
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
            max_candidates=max_candidates,
            max_score_edits=max_score_edits,
            prefix_cache=prefix_cache,
            preempted_pages=preempted_pages,
            prefill_share=prefill_share,
            draft_model=os.fspath(draft_model),
            speculate=None if speculate is None else json.dumps(speculate),
            generation_config=os.fspath(generation_config),
            max_running=max_running,
            max_waiting=max_waiting,
            max_waiting_tokens=max_waiting_tokens,
            items=[(k, os.fspath(v)) for k, v in (items or {}).items()],
            step_timeout=seconds(step_timeout, "step_timeout"),
        )
        close_at_exit(self._engine)
        self.directory = os.fspath(directory)
        self._tokenizer: Tokenizer | None = None

    # Blocking calls.

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: Any = None,
        *,
        timeout: float | None = None,
        return_exceptions: bool = False,
        use_tqdm: bool = False,
        **keywords: Any,
    ) -> list[RequestOutput]:
        """Generates for one prompt or many, which run together; one answer for
        each, in order.

        `params` may be a list, one for each prompt. With `return_exceptions` an
        error stands in the place of its answer; without it the first is raised.
        Ctrl-C ends all of them.
        """
        prompts = [prompts] if _is_one(prompts) else list(prompts)
        each: Params | list[Params]
        if isinstance(params, (list, tuple)):
            if len(params) != len(prompts):
                raise invalid(
                    "params",
                    f"must be one for each of {len(prompts)} prompts",
                    len(params),
                )
            each = [parse(own, keywords) for own in params]
        else:
            each = parse(params, keywords)
        progress = _Progress(len(prompts)) if use_tqdm else None
        try:
            answers = self._engine.generate(
                [_plain_prompt(prompt) for prompt in prompts],
                each,
                seconds(timeout),
                progress,
            )
        finally:
            if progress is not None:
                progress.close()
        if not return_exceptions:
            _raise_first(answers)
        return answers

    def stream(
        self,
        prompt: Prompt,
        params: Any = None,
        *,
        timeout: float | None = None,
        **keywords: Any,
    ) -> Stream:
        """Iterates over new tokens, as they come; leaving the iteration ends
        the request. Of beams these are the prefix that all hypotheses share."""
        return Stream(
            self._engine,
            _plain_prompt(prompt),
            parse(params, keywords),
            seconds(timeout),
        )

    @overload
    def score(
        self,
        prompts: str | ChatPrompt,
        continuations: Sequence[Any],
        *,
        append_eos: bool = ...,
        timeout: float | None = ...,
        **keywords: Any,
    ) -> list[ContinuationScore]: ...

    @overload
    def score(
        self,
        prompts: Sequence[Any],
        continuations: Sequence[Any],
        *,
        append_eos: bool = ...,
        timeout: float | None = ...,
        **keywords: Any,
    ) -> Any: ...

    def score(
        self,
        prompts: Any,
        continuations: Sequence[Any],
        *,
        append_eos: bool = False,
        timeout: float | None = None,
        **keywords: Any,
    ) -> Any:
        """Log-probabilities of given continuations, texts or token ids, after
        one prompt: a list of ContinuationScore. Of a list of prompts, each with
        its list of continuations: a list of such lists."""
        is_one = _is_one(prompts)
        if isinstance(continuations, (str, bytes)):
            raise TypeError("continuations must be a list, got one text")
        answers = self._engine.score(
            [_plain_prompt(p) for p in ([prompts] if is_one else prompts)],
            [list(c) for c in ([continuations] if is_one else continuations)],
            parse(None, keywords),
            append_eos,
            seconds(timeout),
        )
        _raise_first(answers)
        return answers[0] if is_one else answers

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        params: Any = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> list[RequestOutput]:
        """Answers one conversation or many, by the model's chat template
        (docs/chat.md)."""
        many = messages if _is_list_of_lists(messages) else [messages]
        prompts = [
            self.render_chat(
                conversation,
                tools=tools,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                chat_template_kwargs=chat_template_kwargs,
            )
            for conversation in many
        ]
        return self.generate(prompts, params, **keywords)

    def render_chat(
        self,
        messages: Any,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> ChatPrompt:
        """The prompt of a conversation, for the other calls."""
        inputs = {
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": (
                None if add_generation_prompt is None else bool(add_generation_prompt)
            ),
            "continue_final_message": bool(continue_final_message),
            "template_kwargs": dict(chat_template_kwargs or {}),
        }
        return self._engine.render_chat(json.dumps(inputs))

    def prompt_token_ids(self, prompt: Prompt, template: str = "") -> list[int]:
        """The tokens that a prompt becomes, with what its template puts around
        it."""
        prompt = _plain_prompt(prompt)
        return list(
            self._engine.prompt_tokens(
                prompt, parse(None, {"template": template or None})
            )
        )

    # For coroutines.

    async def agenerate(
        self,
        prompt: Prompt,
        params: Any = None,
        *,
        timeout: float | None = None,
        **keywords: Any,
    ) -> RequestOutput:
        """Generates for one prompt. Where the task is cancelled, the request
        ends; `asyncio.gather` runs many together."""
        from .asyncio import requests_of_running_loop

        return await requests_of_running_loop().generate(
            self._engine,
            _plain_prompt(prompt),
            parse(params, keywords),
            seconds(timeout),
        )

    def astream(
        self,
        prompt: Prompt,
        params: Any = None,
        *,
        timeout: float | None = None,
        **keywords: Any,
    ) -> AsyncStream:
        """As `stream`, for `async for`, in a running event loop."""
        from .asyncio import requests_of_running_loop

        return requests_of_running_loop().stream(
            self._engine,
            _plain_prompt(prompt),
            parse(params, keywords),
            seconds(timeout),
        )

    # Weights.

    def update_weights(
        self,
        weights: str | os.PathLike[str] | Mapping[str, Any] | Iterable[Any],
        *,
        version: int | None = None,
        running: str = "wait",
        timeout: float | None = None,
    ) -> int:
        """Gives the model other weights, and returns their version.

        `weights` is a directory, or named tensors: a dictionary, or pairs as
        `model.named_parameters()` of torch has them. They are float32, float16
        or bfloat16, under the names of the model's files; what is not named
        keeps its values. Requests run while they are read. Then those that have
        started end first ("wait"), end with Unavailable ("abort"), or continue
        with the new weights ("keep"); all others start with the new ones. No
        page of the prefix cache is shared between weights. Answers say theirs
        (`weights_version`): `version`, or the one after the last.

        `timeout` is for the wait. After an error the weights are as before.
        """
        directory = ""
        tensors: list[tuple[str, Any]] = []
        if isinstance(weights, (str, os.PathLike)):
            directory = os.fspath(weights)
        else:
            pairs: Iterable[Any] = (
                weights.items() if isinstance(weights, Mapping) else weights
            )
            tensors = [(name, _in_host_memory(tensor)) for name, tensor in pairs]
        return self._engine.update_weights(
            tensors, directory, version, running, seconds(timeout)
        )

    @property
    def weights_version(self) -> int:
        """Of the last update; 0 before the first."""
        return self._engine.weights_version

    # What the engine says of itself.

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises Unavailable if the model has none."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer(self._engine)
        return self._tokenizer

    @property
    def model(self) -> dict[str, Any]:
        """Facts of the model: vocab_size, max_context, eos_token_ids,
        has_encoder, decoder_prompt (what every decoder begins with),
        template_names; and max_open, the requests that may be open at once."""
        return self._engine.model_facts()

    def stats(self) -> dict[str, int]:
        """Counters since the LLM was made."""
        return self._engine.stats()

    def metrics(self) -> str:
        """All of them, in the text of Prometheus (docs/metrics.md)."""
        return self._engine.metrics()

    def close(self) -> None:
        """Ends what runs, with CancelledError, and frees the model. Done by
        itself where the LLM is no longer referred to, and at exit."""
        self._engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._engine.is_closed else ""
        return f"LLM({self.directory!r}{closed})"

    def __reduce__(self) -> Any:
        raise TypeError(
            "an LLM cannot be pickled; make one in each process, of the same "
            "directory"
        )


def _is_list_of_lists(messages: Any) -> bool:
    return len(messages) > 0 and isinstance(messages[0], (list, tuple))


class Stream:
    """Iterates over the pieces of a running request; `result` is its answer."""

    def __init__(
        self, engine: Engine, prompt: Any, params: Params, timeout: float
    ) -> None:
        self._engine = engine  # it lives as long as what it answers
        self._requests = Requests()
        self._requests.stream(engine, 0, prompt, params, timeout)
        self._pieces: deque[StreamPiece] = deque()
        self._answer: RequestOutput | BaseException | None = None

    def __iter__(self) -> Iterator[StreamPiece]:
        try:
            while True:
                while self._pieces:
                    yield self._pieces.popleft()
                if self._answer is not None or not len(self._requests):
                    break
                self._wait()
        finally:
            self.close()
        if isinstance(self._answer, BaseException):
            raise self._answer

    def _wait(self) -> None:
        while not self._requests.wait(3600):
            pass
        for _, pieces, answer in self._requests.take():
            self._pieces.extend(pieces)
            if answer is not None:
                self._answer = answer

    def result(self) -> RequestOutput:
        """The answer, when all pieces were read or are passed over.

        Raises ValueError if the stream was left before its end.
        """
        for _ in self:
            pass
        if not isinstance(self._answer, RequestOutput):
            raise ValueError("the stream was left before its end")
        return self._answer

    def close(self) -> None:
        """Ends the request, if it runs."""
        self._requests.cancel(0)


class _Progress:
    """A bar of tqdm, where it is installed."""

    def __init__(self, total: int) -> None:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            tqdm = None
        self._bar = tqdm(total=total, unit="prompt") if tqdm else None

    def __call__(self, num_ended: int) -> None:
        if self._bar is not None:
            self._bar.update(num_ended - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


__all__ = ["LLM", "Prompt", "Stream", "Tokenizer"]

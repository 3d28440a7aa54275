"""The requests of a call: results that any thread may wait for, and tokens as they
come."""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

from .._espalier import Requests, RequestOutput
from ..llm import LLM
from ..params import parse
from .results import GenerationStepResult
from .vocabulary import Vocabulary

_Result = TypeVar("_Result")


@dataclass
class Example:
    """A prompt, and the params of its request; without params it is not run, and
    its output is `prefix`."""

    ids: list[int]
    params: dict[str, Any] | None
    #: What stands before the generated tokens of an output.
    prefix: list[int]


class Batch:
    """The running requests of one call, for which any thread may wait."""

    def __init__(self, llm: LLM, examples: Sequence[Example]) -> None:
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


class AsyncResult(Generic[_Result]):
    """A result that is to come. Where all those of a call are dropped, what runs
    of it ends."""

    def __init__(
        self, batch: Batch, index: int, make: Callable[[Any], _Result]
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


class Steps(Iterator[GenerationStepResult]):
    """The tokens of greedy searches and samples, as they come."""

    def __init__(
        self,
        llm: LLM,
        vocabulary: Vocabulary,
        examples: Sequence[Example],
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

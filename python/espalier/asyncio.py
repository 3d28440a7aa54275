"""Answers for coroutines. The engine wakes an event loop through a descriptor,
at most once a step, and everything that came is taken at once."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from typing import Any

from ._espalier import Engine, Params, RequestOutput, Requests, StreamPiece


class LoopRequests:
    """The requests of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._requests = Requests()
        self._loop = loop
        self._futures: dict[int, asyncio.Future[RequestOutput]] = {}
        self._streams: dict[int, AsyncStream] = {}
        self._last = 0
        loop.add_reader(self._requests.fileno(), self._take)

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _take(self) -> None:
        for number, pieces, answer in self._requests.take():
            stream = self._streams.get(number)
            if stream is not None:
                if answer is not None:
                    del self._streams[number]
                stream._add(pieces, answer)
                continue
            future = self._futures.pop(number)
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    async def generate(
        self, engine: Engine, prompt: Any, params: Params, timeout: float
    ) -> RequestOutput:
        number = self._next()
        self._requests.submit(engine, number, prompt, params, timeout)
        future: asyncio.Future[RequestOutput] = self._loop.create_future()
        self._futures[number] = future
        try:
            return await future
        finally:
            if self._futures.pop(number, None) is not None:
                self._requests.cancel(number)

    def stream(
        self, engine: Engine, prompt: Any, params: Params, timeout: float
    ) -> AsyncStream:
        number = self._next()
        self._requests.stream(engine, number, prompt, params, timeout)
        stream = AsyncStream(self, number)
        self._streams[number] = stream
        return stream

    def _end(self, number: int) -> None:
        if self._streams.pop(number, None) is not None:
            self._requests.cancel(number)


class AsyncStream:
    """Iterates over the pieces of a running request. Its request ends with
    `aclose`, where the iteration is left, and where the task is cancelled."""

    def __init__(self, requests: LoopRequests, number: int) -> None:
        self._requests = requests
        self._number = number
        self._pieces: deque[StreamPiece] = deque()
        self._answer: RequestOutput | BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    def _add(
        self,
        pieces: list[StreamPiece],
        answer: RequestOutput | BaseException | None,
    ) -> None:
        self._pieces.extend(pieces)
        if answer is not None:
            self._answer = answer
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> StreamPiece:
        while not self._pieces:
            if isinstance(self._answer, BaseException):
                raise self._answer
            if self._answer is not None:
                raise StopAsyncIteration
            self._waiter = self._requests._loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                self._close()
                raise
            finally:
                self._waiter = None
        return self._pieces.popleft()

    async def result(self) -> RequestOutput:
        """The answer, when all pieces were read or are passed over."""
        async for _ in self:
            pass
        assert isinstance(self._answer, RequestOutput)
        return self._answer

    def _close(self) -> None:
        self._requests._end(self._number)

    async def aclose(self) -> None:
        """Ends the request, if it runs."""
        self._close()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    def __del__(self) -> None:
        self._close()


# A loop itself keeps its requests, as the reader of their descriptor.
_of_loop: weakref.WeakKeyDictionary[
    asyncio.AbstractEventLoop, weakref.ref[LoopRequests]
] = weakref.WeakKeyDictionary()


def requests_of_running_loop() -> LoopRequests:
    """Those of the loop of the calling coroutine."""
    loop = asyncio.get_running_loop()
    known = _of_loop.get(loop)
    requests = known() if known is not None else None
    if requests is None:
        requests = LoopRequests(loop)
        _of_loop[loop] = weakref.ref(requests)
    return requests

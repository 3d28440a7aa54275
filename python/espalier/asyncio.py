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
        # A stream that nothing reads any more ends its request.
        self._streams: weakref.WeakValueDictionary[int, AsyncStream] = (
            weakref.WeakValueDictionary()
        )
        self._last = 0
        loop.add_reader(self._requests.fileno(), self._take)

    def _next(self) -> int:
        self._last += 1
        return self._last

    def _take(self) -> None:
        for number, pieces, answer in self._requests.take():
            future = self._futures.pop(number, None)
            if future is None:
                stream = self._streams.get(number)
                if stream is not None:
                    stream._add(pieces, answer)
            elif not future.done():
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
        stream = AsyncStream(self._loop, engine, self._requests, number)
        self._streams[number] = stream
        return stream


class AsyncStream:
    """Iterates over the pieces of a running request. The request ends with
    `aclose`, where a wait for it is cancelled, also by a timeout, and where the
    stream is no longer referred to. One coroutine at a time reads it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        engine: Engine,
        requests: Requests,
        number: int,
    ) -> None:
        self._loop = loop
        self._engine = engine  # it lives as long as what it answers
        self._requests = requests
        self._number = number
        self._pieces: deque[StreamPiece] = deque()
        self._answer: RequestOutput | BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._is_closed = False

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _add(
        self,
        pieces: list[StreamPiece],
        answer: RequestOutput | BaseException | None,
    ) -> None:
        self._pieces.extend(pieces)
        if answer is not None:
            self._answer = answer
        self._wake()

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> StreamPiece:
        while not self._pieces:
            if isinstance(self._answer, BaseException):
                raise self._answer
            if self._answer is not None or self._is_closed:
                raise StopAsyncIteration
            if self._waiter is not None:
                raise RuntimeError("another coroutine waits for this stream")
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                self._close()
                raise
            finally:
                self._waiter = None
        return self._pieces.popleft()

    async def result(self) -> RequestOutput:
        """The answer, when all pieces were read or are passed over.

        Raises ValueError if the stream was left before its end.
        """
        async for _ in self:
            pass
        if not isinstance(self._answer, RequestOutput):
            raise ValueError("the stream was left before its end")
        return self._answer

    def _close(self) -> None:
        self._is_closed = True
        if self._answer is None:
            self._requests.cancel(self._number)
        self._wake()

    async def aclose(self) -> None:
        """Ends the request, if it runs."""
        self._close()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    def __del__(self) -> None:
        if self._answer is None:
            self._requests.cancel(self._number)


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

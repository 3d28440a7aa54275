"""Coroutines: answers, streams, cancellation, several loops."""

import asyncio
import random
import threading
import time

import pytest

import espalier
from conftest import MODEL, SENTENCES


def best(answer):
    return answer.outputs[0].text


def until_nothing_is_open(llm):
    for _ in range(500):
        if llm.stats()["num_open"] == 0:
            return
        time.sleep(0.01)
    raise AssertionError(f"{llm.stats()['num_open']} requests are open")


def test_gathered_answers_are_those_of_generate(llm):
    async def main():
        return await asyncio.gather(
            *(llm.agenerate(text, num_beams=4) for text in SENTENCES * 20)
        )

    expected = [best(a) for a in llm.generate(SENTENCES, num_beams=4)]
    assert [best(a) for a in asyncio.run(main())] == expected * 20


def test_a_stream_keeps_its_engine():
    async def main():
        stream = espalier.LLM(MODEL, num_threads=1).astream("Hello", num_beams=2)
        assert [piece async for piece in stream]
        return best(await stream.result())

    assert asyncio.run(main())


def test_streams_of_one_loop(llm):
    async def read(text):
        stream = llm.astream(text, num_beams=4)
        told = "".join([piece.text async for piece in stream])
        answer = await stream.result()
        assert best(answer).startswith(told)
        return best(answer)

    async def main():
        return await asyncio.gather(*(read(text) for text in SENTENCES * 4))

    expected = [best(a) for a in llm.generate(SENTENCES, num_beams=4)]
    assert asyncio.run(main()) == expected * 4


def test_errors_are_raised_where_they_are_awaited(llm):
    async def main():
        with pytest.raises(espalier.InvalidArgument) as error:
            await llm.agenerate("Hello", num_beams=0)
        assert error.value.field == "num_beams"
        with pytest.raises(TimeoutError):
            await llm.agenerate(
                "word " * 100, num_beams=16, min_new_tokens=200, timeout=0.01
            )
        with pytest.raises(espalier.InvalidArgument):
            async for _ in llm.astream([10**6]):
                pass

    asyncio.run(main())
    until_nothing_is_open(llm)


def test_random_cancellations_leave_nothing(llm):
    count = 400

    async def one(i, rng):
        task = asyncio.ensure_future(
            llm.agenerate(SENTENCES[i % 5], num_beams=4)
            if rng.random() < 0.5
            else llm.astream(SENTENCES[i % 5], num_beams=4).result()
        )
        if rng.random() < 0.7:
            await asyncio.sleep(rng.random() * 0.02)
            task.cancel()
        try:
            return best(await task)
        except asyncio.CancelledError:
            return None

    async def main():
        rng = random.Random(1)
        return await asyncio.gather(*(one(i, rng) for i in range(count)))

    expected = [best(a) for a in llm.generate(SENTENCES, num_beams=4)]
    answers = asyncio.run(main())
    for i, answer in enumerate(answers):
        assert answer in (None, expected[i % 5])
    assert any(answers) and None in answers
    until_nothing_is_open(llm)


def test_a_loop_that_closes_ends_its_requests(llm):
    async def main():
        for text in SENTENCES:
            asyncio.ensure_future(llm.agenerate(text, num_beams=8, min_new_tokens=150))
        llm.astream("Hello", num_beams=8, min_new_tokens=150)
        await asyncio.sleep(0.02)

    for _ in range(5):
        asyncio.run(main())
    until_nothing_is_open(llm)


def test_a_loop_that_is_closed_at_once(llm):
    """No cancelled task, no shutdown: the loop alone."""
    for _ in range(5):
        loop = asyncio.new_event_loop()
        loop.create_task(llm.agenerate("Hello", num_beams=8, min_new_tokens=150))
        loop.call_later(0.01, loop.stop)
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
    until_nothing_is_open(llm)


def test_two_loops_on_one_engine(llm):
    expected = [best(a) for a in llm.generate(SENTENCES, num_beams=4)]
    results = []

    async def main():
        return await asyncio.gather(
            *(llm.agenerate(text, num_beams=4) for text in SENTENCES * 5)
        )

    def run():
        results.append([best(a) for a in asyncio.run(main())])

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected * 5] * 4


def test_leaving_an_async_stream_ends_its_request(llm):
    """Within the loop, whose end would end it anyway."""
    long = {"num_beams": 8, "min_new_tokens": 900, "max_new_tokens": 900}

    async def nothing_is_open():
        before = llm.stats()["num_steps"]
        for _ in range(300):
            if llm.stats()["num_open"] == 0:
                break
            await asyncio.sleep(0.01)
        assert llm.stats()["num_open"] == 0
        assert llm.stats()["num_steps"] - before < 500

    async def main():
        async for _ in llm.astream("Hello", **long):
            break
        await nothing_is_open()
        async with llm.astream("Hello", **long) as stream:
            async for _ in stream:
                break
        await nothing_is_open()
        with pytest.raises(ValueError, match="left"):
            await stream.result()
        stream = llm.astream("Hello", **long)
        reader = asyncio.ensure_future(stream.result())
        await asyncio.sleep(0.02)
        with pytest.raises(RuntimeError, match="another coroutine"):
            while True:
                await stream.__anext__()
        await stream.aclose()
        with pytest.raises(ValueError, match="left"):
            await reader
        await nothing_is_open()
        stream = llm.astream("Hello", **long)
        with pytest.raises(asyncio.TimeoutError):
            while True:
                await asyncio.wait_for(stream.__anext__(), 0.001)
        assert [piece async for piece in stream] == []
        await nothing_is_open()

    asyncio.run(asyncio.wait_for(main(), 60))

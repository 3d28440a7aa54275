#!/usr/bin/env python3
"""What the Python package adds to the engine: microseconds of a thread of Python.

    call_benchmark.py MODEL [--requests N] [--streams N] [--tokens N]

Prints of `generate` the time of the calling thread for each request, of
`agenerate` that of the event loop's thread, of `astream` that of the loop's
thread for each event, and the milliseconds of `import espalier` (processor time
and wall). Thread times, so that a busy machine changes little; the least of
five rounds. With ctranslate2 installed and --ctranslate2 DIRECTORY, the same of
its Translator, in the same run. The package must be installed (docs/python.md).
"""

import argparse
import asyncio
import subprocess
import sys
import time


def least(measure, rounds=5):
    return min(measure() for _ in range(rounds))


def thread_micros(run, count):
    began = time.thread_time()
    run()
    return (time.thread_time() - began) * 1e6 / count


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--ctranslate2", metavar="DIRECTORY")
    args = parser.parse_args()

    import espalier

    llm = espalier.LLM(args.model)
    prompts = [f"This is sentence number {i}." for i in range(args.requests)]
    short = dict(num_beams=4, max_new_tokens=1)

    def generate():
        for answer in llm.generate(prompts, **short):
            answer.outputs[0].text

    def agenerate():
        async def main():
            await asyncio.gather(*(llm.agenerate(p, **short) for p in prompts))

        asyncio.run(main())

    num_events = 0

    async def read(prompt):
        nonlocal num_events
        async for _ in llm.astream(prompt, max_new_tokens=args.tokens, ignore_eos=True):
            num_events += 1

    def streams():
        async def main():
            await asyncio.gather(*(read(p) for p in prompts[: args.streams]))

        began = time.thread_time()
        before = num_events
        asyncio.run(main())
        return (time.thread_time() - began) * 1e6 / (num_events - before)

    def rows():
        yield "generate", "us of the calling thread a request", least(
            lambda: thread_micros(generate, args.requests)
        )
        yield "agenerate", "us of the loop's thread a request", least(
            lambda: thread_micros(agenerate, args.requests)
        )
        yield "astream", f"us of the loop's thread an event, {args.streams} streams", (
            least(streams, 3)
        )
        code = (
            "import time; w, c = time.perf_counter(), time.process_time()\n"
            "import espalier\n"
            "print(time.process_time() - c, time.perf_counter() - w)"
        )
        timings = [
            subprocess.run(
                [sys.executable, "-c", code], capture_output=True, check=True
            ).stdout.split()
            for _ in range(10)
        ]
        yield "import", "ms of processor time", min(float(t[0]) for t in timings) * 1e3
        yield "import", "ms of wall time", min(float(t[1]) for t in timings) * 1e3
        if args.ctranslate2:
            import ctranslate2

            translator = ctranslate2.Translator(args.ctranslate2)
            tokens = [[f"{p}" for p in prompt.split()] for prompt in prompts]

            def asynchronous():
                for batch in [
                    translator.translate_batch(
                        [t], beam_size=4, max_decoding_length=1, asynchronous=True
                    )
                    for t in tokens
                ]:
                    batch[0].result()

            yield "ctranslate2", "us of the calling thread a request", least(
                lambda: thread_micros(asynchronous, args.requests)
            )

    for what, unit, value in rows():
        print(f"{what:12} {value:8.2f} {unit}")


if __name__ == "__main__":
    main()

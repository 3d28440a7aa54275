#!/usr/bin/env python3
"""What shared and preempted pages are worth, on the embedded model.

    benchmarks/memory.py [--espalier PROGRAM] [--before PROGRAM] [--rounds 3]
                         [--device cpu]

Two tables. "Scarce pages": 500 requests of 1 to 8 beams that may generate 100
tokens and mostly generate ten, in pools of 64, 128 and 512 pages (8, 16 and 64 MiB).
"Common prompts": 64 requests of 4 beams that begin with the same 502 tokens,
then 200 equal prompts one after the other, a token each.

Each time is the least of the rounds, programs in turn. --before is another
build, such as one from before a change; without it the prefix cache is compared
with none. Results must be equal, token for token, and the script says so.
"""

import argparse
import json
import pathlib
import random
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "models" / "en-fr"


def references():
    with open(ROOT / "tests/data/beam_search.jsonl", encoding="utf-8") as file:
        return [json.loads(line)["prompt_tokens"] for line in file]


def write_requests(path, prompts, params):
    with open(path, "w", encoding="utf-8") as file:
        for i, prompt in enumerate(prompts):
            line = {"id": i, "prompt_tokens": prompt, "params": params(i)}
            file.write(json.dumps(line) + "\n")


def run(command, requests):
    """The seconds it took, and the results without what they cost."""
    with tempfile.NamedTemporaryFile() as output:
        begin = time.perf_counter()
        subprocess.run([*command, "--input", requests, "-o", output.name],
                       check=True, stderr=subprocess.DEVNULL)
        seconds = time.perf_counter() - begin
        results = [json.loads(line) for line in open(output.name, "rb")]
    for result in results:
        result.get("usage", {}).pop("cached_tokens", None)
    return seconds, results


def compare(name, before, after, requests, options, rounds):
    times = {True: [], False: []}
    results = {}
    for _ in range(rounds):
        for is_after, program in ((False, before), (True, after)):
            command = [*program[:1], "batch", "-m", str(MODEL), *program[1:],
                       *options]
            seconds, results[is_after] = run(command, requests)
            times[is_after].append(seconds)
    equal = "yes" if results[True] == results[False] else "NO"
    least = {key: min(value) for key, value in times.items()}
    print(f"| {name} | {least[False]:.2f} | {least[True]:.2f} "
          f"| {least[False] / least[True]:.2f} | {equal} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--espalier",
                        default=str(ROOT / "build/release/bin/espalier"))
    parser.add_argument("--before")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    after = [args.espalier]
    before = [args.before] if args.before else [
        args.espalier, "--prefix-cache", "off"]
    device = ["--device", args.device]
    prompts = references()
    rng = random.Random(1)
    widths = [rng.choice([1, 2, 4, 8]) for _ in range(500)]
    common = [1] + [t for prompt in prompts for t in prompt[1:]][:501]
    print("| requests | before s | after s | ratio | equal |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        scarce = f"{work}/scarce.jsonl"
        write_requests(scarce, (prompts * 2)[:500], lambda i: {
            "num_beams": widths[i], "max_new_tokens": 100})
        for mib in (8, 16, 64):
            compare(f"scarce pages: {mib} MiB", before, after, scarce,
                    [*device, "--kv-cache-mib", str(mib)], args.rounds)
        shared = f"{work}/shared.jsonl"
        write_requests(shared, [common + p[1:] for p in prompts[:64]],
                       lambda _: {"num_beams": 4, "max_new_tokens": 20})
        compare("64 with 502 common tokens", before, after, shared, device,
                args.rounds)
        equal = f"{work}/equal.jsonl"
        write_requests(equal, [common] * 200, lambda _: {"max_new_tokens": 1})
        compare("200 equal prompts, one by one", before, after, equal,
                [*device, "--max-running", "1"], args.rounds)


if __name__ == "__main__":
    main()

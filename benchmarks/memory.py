#!/usr/bin/env python3
"""What shared and preempted pages are worth, on the embedded model.

    benchmarks/memory.py [--espalier PROGRAM] [--before PROGRAM] [--rounds 3]
                         [--device cpu] [--threads 0] [--token-cost 0.008]

Rows of "scarce pages": 500 requests of 1 to 8 beams that may generate 100 tokens
and mostly generate ten, in pools of 64, 128 and 512 pages (6, 12 and 48 MiB).
"long": 100 of them that generate 100 tokens, whose worst cases are what they
take. "common": 64 requests of 4 beams that begin with the same 502 tokens, then
200 equal prompts one after the other, a token each.

Each time is the least of the rounds, programs in turn. --before is another
build, such as one from before a change; without it the prefix cache is compared
with none. Results must be equal, token for token, and the script says so.

A time depends on what a step costs on this machine: on a CPU about what its
tokens cost, on a GPU about what reading the weights costs, however many tokens
there are. So steps and tokens fed are counted, too, and "by cost" is the ratio
of the times if a step takes 1 + token_cost * tokens: 0.004 to 0.008 on an H200
(docs/performance.md, "Steps where pages are scarce").
"""

import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
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


def count(pattern, figures):
    found = re.search(pattern, figures)
    return int(found[1]) if found else 0


def run(command, requests):
    """The seconds it took, (steps, tokens fed), and the results without what
    they cost."""
    with tempfile.NamedTemporaryFile() as output:
        begin = time.perf_counter()
        done = subprocess.run(
            [*command, "--figures", "--input", requests, "-o", output.name],
            check=True, stderr=subprocess.PIPE, text=True)
        seconds = time.perf_counter() - begin
        results = [json.loads(line) for line in open(output.name, "rb")]
    for result in results:
        result.get("usage", {}).pop("cached_tokens", None)
    figures = done.stderr
    num_tokens = (count(r"(\d+) prompt token", figures)
                  + count(r"(\d+) beam row", figures)
                  + count(r"(\d+) tokens? fed again", figures))
    return seconds, (count(r"(\d+) steps?:", figures), num_tokens), results


def compare(name, before, after, requests, options, args):
    times = {True: [], False: []}
    work = {}
    results = {}
    for _ in range(args.rounds):
        for is_after, program in ((False, before), (True, after)):
            command = [*program[:1], "batch", "-m", str(MODEL), *program[1:],
                       "--device", args.device, "--threads", str(args.threads),
                       *options]
            seconds, work[is_after], results[is_after] = run(command, requests)
            times[is_after].append(seconds)
    equal = "yes" if results[True] == results[False] else "NO"
    least = {key: min(value) for key, value in times.items()}
    if not all(steps for steps, _ in work.values()):
        sys.exit(f"{name}: the --figures of a program name no steps")
    cost = {key: steps + args.token_cost * tokens
            for key, (steps, tokens) in work.items()}
    print(f"| {name} | {least[False]:.2f}, {least[True]:.2f} "
          f"| {least[False] / least[True]:.2f} "
          f"| {work[False][0]}, {work[True][0]} "
          f"| {work[False][0] / work[True][0]:.2f} "
          f"| {work[False][1]}, {work[True][1]} "
          f"| {cost[False] / cost[True]:.2f} | {equal} |", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--espalier",
                        default=str(ROOT / "build/release/bin/espalier"))
    parser.add_argument("--before")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--token-cost", type=float, default=0.008)
    args = parser.parse_args()
    after = [args.espalier]
    before = [args.before] if args.before else [
        args.espalier, "--prefix-cache", "off"]
    prompts = references()
    rng = random.Random(1)
    widths = [rng.choice([1, 2, 4, 8]) for _ in range(500)]
    common = [1] + [t for prompt in prompts for t in prompt[1:]][:501]
    print("| requests | s before, after | ratio | steps | ratio | tokens fed "
          "| ratio by cost | equal |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        scarce = f"{work}/scarce.jsonl"
        write_requests(scarce, (prompts * 2)[:500], lambda i: {
            "num_beams": widths[i], "max_new_tokens": 100})
        for mib in (6, 12, 48):
            compare(f"scarce pages: {mib} MiB", before, after, scarce,
                    ["--kv-cache-mib", str(mib)], args)
        long = f"{work}/long.jsonl"
        write_requests(long, prompts[:100], lambda i: {
            "num_beams": widths[i], "max_new_tokens": 100,
            "ignore_eos": True})
        compare("long, scarce pages: 6 MiB", before, after, long,
                ["--kv-cache-mib", "6"], args)
        shared = f"{work}/shared.jsonl"
        write_requests(shared, [common + p[1:] for p in prompts[:64]],
                       lambda _: {"num_beams": 4, "max_new_tokens": 20})
        compare("64 with 502 common tokens", before, after, shared, [], args)
        equal = f"{work}/equal.jsonl"
        write_requests(equal, [common] * 200, lambda _: {"max_new_tokens": 1})
        compare("200 equal prompts, one by one", before, after, equal,
                ["--max-running", "1"], args)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What speculation is worth, on the embedded models.

    benchmarks/speculation.py [--espalier PROGRAM] [--rounds 9] [--threads 1]
    benchmarks/speculation.py --before PROGRAM     plain requests, two builds

A table of verify_speculation: requests with speculation and without,
in turn in one process, medians. "Sentences": 50 English sentences that the
models were not trained on, translated one at a time or 8 together. "Copies":
texts that repeat themselves, which drafts from history are for: the sentences'
translations as the only sequence that is allowed, so that the text is given and
every step verifies against it.

--before compares what does not speculate with another build, such as one from
before a change: the same requests by espalier batch, programs in turn, medians.

All results must be equal, and the script says so.
"""

import argparse
import json
import pathlib
import random
import re
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "models" / "en-fr"
DRAFT = ROOT / "models" / "en-fr-draft"


def sentences(count):
    """The longer half of the development set."""
    with open(ROOT / "benchmarks/data/dev_sentences.jsonl",
              encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    texts = sorted(texts, key=len)[len(texts) // 2:]
    return random.Random(1).sample(texts, count)


def write_requests(path, requests):
    with open(path, "w", encoding="utf-8") as file:
        for request in requests:
            file.write(json.dumps(request) + "\n")


def copies(count):
    """Prompts with a passage that the output, all there is to choose, copies."""
    rng = random.Random(2)
    for _ in range(count):
        passage = [rng.randrange(300, 5000) for _ in range(60)]
        yield {"prompt_tokens": [1, 4, *passage, 5],
               "params": {"max_new_tokens": 61,
                          "allowed_sequences": [passage]}}


def verify(args, name, requests, options):
    program = pathlib.Path(args.espalier).with_name("verify_speculation")
    command = [str(program), "-m", str(MODEL),
               "--rounds", str(args.rounds), "--threads", str(args.threads),
               *options, requests]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    verdicts = {0: "yes", 1: "NO", 3: "no drafts"}
    if run.returncode not in verdicts:
        raise SystemExit(run.stderr)
    timed = re.search(r"^timed, .*$", run.stdout, re.M)[0]
    tokens = re.search(r"([\d.]+) tokens per step of a sequence", timed)
    accepted = re.search(r"accepted \d+ \(([\d.]+)%\)", timed)
    times = re.search(r"([\d.]+) s without, ([\d.]+) s with", run.stdout)
    without, with_ = float(times[1]), float(times[2])
    equal = verdicts[run.returncode]
    print(f"| {name} | {accepted[1]}% | {tokens[1]} | {without:.3f} "
          f"| {with_:.3f} | {without / with_:.2f} | {equal} |", flush=True)


def speculate(args, work):
    print("| requests | accepted | tokens a step | plain s | speculating s "
          "| speed-up | equal |")
    print("|---|---|---|---|---|---|---|")
    alone, together = ["--max-running", "1"], ["--max-running", "8"]
    draft = ["--draft-model", str(DRAFT)]
    texts = f"{work}/texts.jsonl"
    write_requests(texts, [{"prompt": text} for text in sentences(50)])
    verify(args, "sentences, draft", texts, [*alone, *draft])
    for k in (1, 2, 3):
        verify(args, f"sentences, draft:{k}", texts,
               [*alone, *draft, "--speculate", f"draft:{k}"])
    verify(args, "sentences, draft, 8 together", texts, [*together, *draft])
    given = f"{work}/copies.jsonl"
    write_requests(given, copies(16))
    for method in ("ngram", "suffix", "ngram:16"):
        verify(args, f"copies, {method}", given,
               [*alone, "--speculate", method])
    verify(args, "copies, ngram, 8 together", given,
           [*together, "--speculate", "ngram"])


def run_batch(program, requests, args, options):
    with tempfile.NamedTemporaryFile() as output:
        begin = time.perf_counter()
        subprocess.run([program, "batch", "-m", str(MODEL), "--threads",
                        str(args.threads), *options, "--input", requests,
                        "-o", output.name], check=True,
                       stderr=subprocess.DEVNULL)
        seconds = time.perf_counter() - begin
        results = [json.loads(line) for line in open(output.name, "rb")]
    for result in results:  # how prompts were fed depends on the clock
        result.get("usage", {}).pop("cached_tokens", None)
    return seconds, results


def compare_builds(args, work):
    print("| plain requests | before s | after s | after / before | equal |")
    print("|---|---|---|---|---|")
    texts = sentences(200)
    for name, params, options in (
            ("greedy, one by one", {}, ["--max-running", "1"]),
            ("greedy, all together", {}, []),
            ("4 samples", {"do_sample": True, "n": 4, "seed": 1}, []),
            ("4 beams", {"num_beams": 4}, [])):
        path = f"{work}/plain.jsonl"
        write_requests(path, [{"prompt": text, "params": params}
                              for text in texts])
        times, results = ([], []), [None, None]
        for _ in range(args.rounds):
            for i, program in enumerate((args.before, args.espalier)):
                seconds, results[i] = run_batch(program, path, args, options)
                times[i].append(seconds)
        before, after = (statistics.median(t) for t in times)
        equal = "yes" if results[0] == results[1] else "NO"
        print(f"| {name} | {before:.3f} | {after:.3f} | {after / before:.3f} "
              f"| {equal} |", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--espalier",
                        default=str(ROOT / "build/release/bin/espalier"))
    parser.add_argument("--before")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        if args.before:
            compare_builds(args, work)
        else:
            speculate(args, work)


if __name__ == "__main__":
    main()

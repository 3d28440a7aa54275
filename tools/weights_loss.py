"""What quantised weights lose against those of the file, on the CPU or a GPU.

    python -m tools.weights_loss --espalier build/release/bin/espalier
    python -m tools.weights_loss --espalier build/cuda/bin/espalier --device cuda

Translates the sentences of benchmarks/data with 4 beams under each `--weights`,
and prints BLEU; how many of the best hypotheses, and of the lists of 4 in their
order, are those of the weights as stored; and how far log-probabilities of next
tokens are from theirs after the same text, the root of the mean square and the
largest difference: of the 8 best tokens at each place of the best hypotheses,
which are fed as prompts.
"""

import argparse
import json
import math
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tools.bleu import bleu

ROOT = Path(__file__).resolve().parent.parent
NUM_BEST = 8

Row = dict[str, Any]


def run(args: argparse.Namespace, weights: str, requests: list[Row]) -> list[Row]:
    """The answers to `requests`, in their order."""
    with tempfile.TemporaryDirectory() as work:
        source, target = Path(work, "in"), Path(work, "out")
        source.write_text("".join(json.dumps(row) + "\n" for row in requests))
        subprocess.run(
            [args.espalier, "batch", "-m", args.model, "--weights", weights]
            + ["--device", args.device, "-i", str(source), "-o", str(target)],
            check=True,
        )
        rows = [json.loads(line) for line in target.read_text().splitlines()]
    return sorted(rows, key=lambda row: row["id"])


def next_tokens(answers: list[Row], num_prompt: list[int]) -> list[dict[int, float]]:
    """The log-probabilities of the best tokens at each place after a prompt."""
    places = []
    for answer, begin in zip(answers, num_prompt, strict=True):
        for place in answer["prompt_logprobs"][begin:]:
            places.append({best["token"]: best["log_prob"] for best in place["top"]})
    return places


def difference(places: list[dict[int, float]], stored: list[dict[int, float]]) -> str:
    """Over the stored weights' best tokens that are among the others' best, too."""
    errors = [
        place[token] - log_prob
        for place, of_stored in zip(places, stored, strict=True)
        for token, log_prob in list(of_stored.items())[:NUM_BEST]
        if token in place
    ]
    rms = math.sqrt(sum(error * error for error in errors) / len(errors))
    return f"{rms:.4f} | {max(map(abs, errors)):.3f}"


def prompts(args: argparse.Namespace, requests: list[Row]) -> list[list[int]]:
    """The tokens of each request's prompt."""
    params = {"max_new_tokens": 1, "prompt_logprobs": 0}
    asked = [row | {"params": params} for row in requests]
    config = json.loads(Path(args.model, "config.json").read_text())
    first = config["bos_token_id"]  # which has no log-probability
    return [
        [first] + [place["token"] for place in row["prompt_logprobs"][1:]]
        for row in run(args, "stored", asked)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--espalier", default="build/release/bin/espalier")
    parser.add_argument("--model", default=str(ROOT / "models" / "en-fr"))
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    formats = ["stored", "fp8"] + (["int8", "int4"] if args.device == "cpu" else [])
    path = ROOT / "benchmarks" / "data" / "dev_sentences.jsonl"
    sentences = [json.loads(line) for line in path.read_text().splitlines()]
    params = {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 40}
    requests = [
        {"id": i, "prompt": row["text"], "params": params}
        for i, row in enumerate(sentences)
    ]
    sources = prompts(args, requests)
    lengths = [len(source) for source in sources]
    stored: list[list[list[int]]] = []
    forced: list[Row] = []
    stored_places: list[dict[int, float]] = []
    print("| weights | BLEU | same best | same 4 in order | RMS | largest |")
    print("|---|---|---|---|---|---|")
    for weights in formats:
        answers = run(args, weights, requests)
        lists = [[h["tokens"] for h in row["hypotheses"]] for row in answers]
        texts = [row["hypotheses"][0]["text"] for row in answers]
        score = bleu(texts, [row["references"] for row in sentences])
        if weights == "stored":
            stored = lists
            forced = [
                {
                    "id": i,
                    "prompt_tokens": source + hypotheses[0],
                    "params": {"max_new_tokens": 1, "prompt_logprobs": 64},
                }
                for i, (source, hypotheses) in enumerate(
                    zip(sources, lists, strict=True)
                )
            ]
        places = next_tokens(run(args, weights, forced), lengths)
        if weights == "stored":
            stored_places = places
        best = sum(a[0] == b[0] for a, b in zip(lists, stored, strict=True))
        same = sum(a == b for a, b in zip(lists, stored, strict=True))
        loss = difference(places, stored_places)
        print(f"| {weights} | {score:.2f} | {best} | {same} | {loss} |", flush=True)


if __name__ == "__main__":
    main()

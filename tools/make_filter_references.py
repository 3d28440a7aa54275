"""Makes references for the filters of sampling: what transformers' warpers leave.

    python -m tools.make_filter_references --output tests/data/filters.jsonl

Rows of random logits go through transformers' own classes in the order of
kernels/sample/sample.h (temperature, min_p, top_k, top_p, typical_p), in float64; a
line has `logits`, `params` and the `probabilities` that are drawn from, 0 for
what is filtered out. Rows in which a sum lies close to its bound are drawn
anew: there, rounding decides.
"""

import argparse
import random
from pathlib import Path
from typing import Any

import torch
from transformers import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from tools.embedded_model import write_jsonl

Row = dict[str, Any]

WARPERS = {
    "temperature": TemperatureLogitsWarper,
    "min_p": MinPLogitsWarper,
    "top_k": TopKLogitsWarper,
    "top_p": TopPLogitsWarper,
    "typical_p": TypicalLogitsWarper,
}
CHOICES = {
    "temperature": [0.5, 0.8, 1.5],
    "min_p": [0.02, 0.1, 0.3],
    "top_k": [1, 3, 8, 20],
    "top_p": [0.3, 0.8, 0.95],
    "typical_p": [0.3, 0.8, 0.95],
}
MARGIN = 1e-4  # relative, that a filter may be off without another result


def filtered(logits: list[float], params: Row) -> list[float]:
    scores = torch.tensor([logits], dtype=torch.float64)
    for name, value in params.items():
        scores = WARPERS[name](value)(None, scores)
    return scores.softmax(-1)[0].tolist()


def nudged(params: Row, factor: float) -> Row:
    bounds = ("min_p", "top_p", "typical_p")
    return {k: v * factor if k in bounds else v for k, v in params.items()}


def make_row(rng: random.Random) -> Row:
    params = {
        name: rng.choice(values)
        for name, values in CHOICES.items()
        if rng.random() < 0.5
    }
    while True:
        scale = rng.choice([0.5, 2.0, 5.0])
        logits = [round(rng.gauss(0, scale), 4) for _ in range(32)]
        probabilities = filtered(logits, params)
        kept = [p > 0 for p in probabilities]
        sides = (nudged(params, 1 - MARGIN), nudged(params, 1 + MARGIN))
        if all([p > 0 for p in filtered(logits, s)] == kept for s in sides):
            break
    rounded = [float(f"{p:.9g}") for p in probabilities]
    return {"logits": logits, "params": params, "probabilities": rounded}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    write_jsonl(args.output, [make_row(rng) for _ in range(args.count)])


if __name__ == "__main__":
    main()

"""How closely a device's results are the reference's, and each other's.

    python -m tools.parity --espalier build/cuda/bin/espalier

Runs the 300 requests of tests/data/beam_search.jsonl, or those of another model
(`--model tests/data/families/qwen2 --reference
tests/data/families/qwen2/requests.jsonl`), through `espalier batch` on the CPU
and on a GPU in every dtype, and prints two tables: each run against the
reference (transformers in float64), and requests alone against the same among
others. In f32 both ought to agree everywhere; in bf16 and f16 the rounding of
the forward pass decides near ties, and depends on how many rows are computed
together. Needs nothing but Python.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.reference_check import beams_match

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "tests" / "data" / "beam_search.jsonl"

Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    device: str
    dtype: str
    max_running: int

    def __str__(self) -> str:
        return f"{self.device} {self.dtype}, at most {self.max_running} together"


@dataclass(frozen=True)
class Agreement:
    """How many of `total` requests agree, ever more loosely."""

    total: int
    identical: int  # every byte of the hypotheses
    matching: int  # by tools/reference_check.py
    same_tokens: int  # in the same order
    same_best: int
    largest_difference: float  # relative, of scores of the same hypotheses


def read_rows(path: Path) -> list[Row]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def requests(reference: list[Row]) -> str:
    """The reference's requests, asking for every hypothesis it has."""
    lines = []
    for row in reference:
        params = {**row["params"], "num_return_sequences": len(row["hypotheses"])}
        line = {"prompt_tokens": row["prompt_tokens"], "params": params}
        lines.append(json.dumps(line) + "\n")
    return "".join(lines)


def execute(args: argparse.Namespace, run: Run, text: str, work: Path) -> list[Row]:
    output = work / "out.jsonl"
    command = [str(args.espalier.resolve()), "batch", "-m", str(args.model)]
    command += ["--device", run.device, "--dtype", run.dtype]
    command += ["--max-running", str(run.max_running), "--output", str(output)]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command} failed with {done.returncode}:\n{done.stderr}")
    return read_rows(output)


def tokens(row: Row) -> list[list[int]]:
    return [hypothesis["tokens"] for hypothesis in row["hypotheses"]]


def score_differences(expected: Row, actual: Row) -> list[float]:
    """Of the hypotheses that both have; greedy references have no scores."""
    scores = {tuple(h["tokens"]): h["score"] for h in expected["hypotheses"]}
    pairs = (
        (scores.get(tuple(h["tokens"])), h["score"]) for h in actual["hypotheses"]
    )
    return [abs(a - b) / max(abs(a), abs(b), 1e-9) for a, b in pairs if a is not None]


def with_reference_scores(expected: Row, actual: Row) -> Row:
    """`actual` as the reference would say it: greedy results without a score."""
    if expected["hypotheses"][0]["score"] is not None:
        return actual
    hypotheses = [{**h, "score": None} for h in actual["hypotheses"]]
    return {**actual, "hypotheses": hypotheses}


def compare(expected: Sequence[Row], actual: Sequence[Row]) -> Agreement:
    pairs = [
        (e, with_reference_scores(e, a)) for e, a in zip(expected, actual, strict=True)
    ]
    return Agreement(
        total=len(pairs),
        identical=sum(e["hypotheses"] == a["hypotheses"] for e, a in pairs),
        matching=sum(beams_match(e, a) for e, a in pairs),
        same_tokens=sum(tokens(e) == tokens(a) for e, a in pairs),
        same_best=sum(tokens(e)[0] == tokens(a)[0] for e, a in pairs),
        largest_difference=max(
            (d for e, a in pairs for d in score_differences(e, a)), default=0.0
        ),
    )


def table(title: str, lines: list[tuple[str, Agreement]]) -> str:
    header = (
        f"| {title} | same bytes | same within 1e-4 | same tokens, same order "
        "| same best hypothesis | largest relative score difference |"
    )
    rows = [header, "|---|---|---|---|---|---|"]
    for name, a in lines:
        counts = (a.identical, a.matching, a.same_tokens, a.same_best)
        cells = [name, *(f"{n} of {a.total}" for n in counts)]
        cells.append(f"{a.largest_difference:.1e}")
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--espalier", type=Path, default=ROOT / "build" / "cuda" / "bin" / "espalier")
    add("--model", type=Path, default=ROOT / "models" / "en-fr")
    add("--reference", type=Path, default=REFERENCE, help="of the model")
    add("--devices", nargs="+", default=["cpu", "cuda"], help="cpu, cuda, cuda:1")
    add("--dtypes", nargs="+", default=["f32", "bf16", "f16"], help="of GPUs")
    add("--together", type=int, default=64, help="requests that run together")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    reference = read_rows(args.reference)
    text = requests(reference)
    against_reference, against_alone = [], []
    with tempfile.TemporaryDirectory() as name:
        for device in args.devices:
            for dtype in ["f32"] if device == "cpu" else args.dtypes:
                run = Run(device, dtype, args.together)
                together = execute(args, run, text, Path(name))
                alone = execute(args, Run(device, dtype, 1), text, Path(name))
                against_reference.append((str(run), compare(reference, together)))
                against_alone.append((f"{device} {dtype}", compare(alone, together)))
    print(table("against transformers in float64", against_reference))
    print()
    print(table(f"{args.together} together against one alone", against_alone))


if __name__ == "__main__":
    main()

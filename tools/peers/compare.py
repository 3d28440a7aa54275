"""Compares espalier with its peers: the same machine, model and sentences.

    cmake --preset release && cmake --build --preset release --target espalier_cli
    pip install -r tools/requirements.txt
    python -m tools.peers.compare

Every sentence of benchmarks/data is translated with 4 beams and at most 40 new
tokens, float32, on the same cores. The systems take turns, so that a busy
moment of the machine meets all of them; transformers one prompt at a time is
slow and runs in the first round only. Medians are reported.

espalier's time is that of its whole process, from start to exit, model loading
and text in and out included. The peers' time is spent inside their generation
calls only: they load, tokenize and warm up before the clock starts.
"""

import argparse
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tools.bleu import bleu
from tools.embedded_model import ROOT, Tokenizer, read_jsonl
from tools.peers import common, systems
from tools.peers.systems import REFERENCE, SYSTEMS, Measured

Row = dict[str, Any]


def use_cores(num_cores: int) -> None:
    """Confines this process and its children to the first cores allowed to it."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < num_cores:
        sys.exit(f"--threads {num_cores}, but {len(allowed)} cores are allowed")
    os.sched_setaffinity(0, allowed[:num_cores])


def measure(args: argparse.Namespace, work: Path) -> list[Measured]:
    """Runs the systems in turn, `args.rounds` times."""
    results = [Measured(name) for name in args.systems]
    for round_idx in range(args.rounds):
        for measured in results:
            if measured.name == REFERENCE and round_idx > 0:
                continue
            SYSTEMS[measured.name](args, work, measured)
            print(f"# {measured.name}: {measured.seconds[-1]:.2f} s", file=sys.stderr)
    return results


def agreement(measured: Measured, results: list[Measured]) -> str:
    """How many of the best hypotheses are token for token the reference's."""
    reference = next((r for r in results if r.name == REFERENCE), None)
    if reference is None:
        return "–"
    pairs = zip(measured.tokens, reference.tokens, strict=True)
    return f"{sum(a == b for a, b in pairs)} of {len(reference.tokens)}"


def table(results: list[Measured], sentences: list[Row], tokenizer: Tokenizer) -> str:
    references = [row["references"] for row in sentences]
    first = statistics.median(results[0].seconds)
    lines = [
        f"| system | runs | seconds: median (range) | sentences/s | tokens/s "
        f"| time / {results[0].name} | best equals {REFERENCE}' | BLEU |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        median = statistics.median(r.seconds)
        settings = ", ".join(f"{k} {v}" for k, v in r.settings.items())
        texts = [tokenizer.decode(tokens) for tokens in r.tokens]
        cells = [
            f"{r.name} ({settings})" if settings else r.name,
            str(len(r.seconds)),
            f"{median:.2f} ({min(r.seconds):.2f}–{max(r.seconds):.2f})",
            f"{len(sentences) / median:.1f}",
            f"{sum(map(len, r.tokens)) / median:.0f}",
            f"{median / first:.2f}",
            agreement(r, results),
            f"{bleu(texts, references):.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _first_line(command: list[str], prefix: str = "") -> str:
    lines = subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout
    found = (line for line in lines.splitlines() if line.startswith(prefix))
    return next(found, "unknown").removeprefix(prefix).strip()


def circumstances(args: argparse.Namespace, num_sentences: int) -> str:
    """Machine, versions, sizes and command: what a figure is quoted with."""
    packages = ("transformers", "torch", "ctranslate2", "sacrebleu")
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    commit = _first_line(["git", "describe", "--always", "--dirty"])
    weights = (args.model / "model.safetensors").stat().st_size
    return "\n".join(
        [
            f"- machine: {_first_line(['lscpu'], 'Model name:')}, "
            f"{args.threads} cores of {os.cpu_count()}, {platform.platform()}; "
            f"load at the end {load}",
            f"- versions: espalier {commit}, Python {platform.python_version()}, "
            + ", ".join(f"{p} {version(p)}" for p in packages),
            f"- sizes: {num_sentences} sentences, {common.NUM_BEAMS} beams, at most "
            f"{common.MAX_NEW_TOKENS} new tokens, float32, "
            f"{args.model.name} ({weights / 1e6:.1f} MB of bf16 weights)",
            f"- command: `python -m tools.peers.compare {shlex.join(sys.argv[1:])}`",
            "- espalier: the whole process, loading included; peers: inside their "
            "generation calls only, loading excluded",
        ]
    )


def parse_args() -> argparse.Namespace:
    parser = common.comparison_parser(__doc__)
    add = parser.add_argument
    add("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    add(
        "--espalier", type=Path, default=ROOT / "build" / "release" / "bin" / "espalier"
    )
    add("--rounds", type=int, default=3)
    args = parser.parse_args()
    if "espalier" in args.systems and not args.espalier.is_file():
        parser.error(f"no program at {args.espalier}; build it, or choose --systems")
    return args


def main() -> None:
    args = parse_args()
    use_cores(args.threads)
    sentences = read_jsonl(args.sentences)[: args.limit]
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        systems.write_requests(sentences, work / "requests.jsonl")
        results = measure(args, work)
    print(table(results, sentences, Tokenizer(args.model)))
    print()
    print(circumstances(args, len(sentences)))


if __name__ == "__main__":
    main()

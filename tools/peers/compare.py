"""Compares espalier with its peers: the same machine, model and sentences.

    cmake --preset release && cmake --build --preset release --target espalier_cli
    pip install -r tools/requirements.txt
    python -m tools.peers.compare [--gpu]

Every sentence of benchmarks/data is translated with 4 beams and at most 40 new
tokens, float32, on the same cores. The systems take turns, so that a busy
moment of the machine meets all of them; transformers one prompt at a time, or on
a GPU, runs in the first round only. Medians are reported.

espalier's time is that of its whole process, from start to exit, model loading
and text in and out included; "within" leaves out starting and loading. The peers'
time is spent inside their generation calls only: they load, tokenize and warm up
before the clock starts.

With --gpu the systems run on a GPU, where starting takes longer than translating,
so every sentence comes 20 times; espalier on the CPU runs beside them, to say
which results are exact.
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
from tools.embedded_model import ROOT, Tokenizer
from tools.peers import common, systems
from tools.peers.systems import GPU_SYSTEMS, ONCE, REFERENCE, SYSTEMS, Measured

Row = dict[str, Any]


def use_cores(num_cores: int) -> None:
    """Confines this process and its children to the first cores allowed to it."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < num_cores:
        sys.exit(f"--threads {num_cores}, but {len(allowed)} cores are allowed")
    os.sched_setaffinity(0, allowed[:num_cores])


def measure(args: argparse.Namespace, work: Path) -> list[Measured]:
    """Runs the systems in turn, `args.rounds` times."""
    known = GPU_SYSTEMS if args.gpu else SYSTEMS
    results = [Measured(name) for name in args.systems]
    for round_idx in range(args.rounds):
        for measured in results:
            if measured.name in ONCE and round_idx > 0:
                continue
            known[measured.name](args, work, measured)
            print(f"# {measured.name}: {measured.seconds[-1]:.2f} s", file=sys.stderr)
    return results


def reference_of(results: list[Measured]) -> Measured | None:
    """Whose results are the exact ones: transformers' alone, or else our CPU's."""
    named = {r.name: r for r in results}
    return named.get(REFERENCE) or named.get("espalier")


def agreement(measured: Measured, reference: Measured | None) -> str:
    """How many of the best hypotheses are token for token the reference's."""
    if reference is None:
        return "–"
    pairs = zip(measured.tokens, reference.tokens, strict=True)
    return f"{sum(a == b for a, b in pairs)} of {len(reference.tokens)}"


def table(results: list[Measured], sentences: list[Row], tokenizer: Tokenizer) -> str:
    references = [row["references"] for row in sentences]
    first = statistics.median(results[0].seconds)
    reference = reference_of(results)
    lines = [
        f"| system | runs | seconds: median (range) | within | sentences/s within "
        f"| time / {results[0].name} | best is {reference.name if reference else '–'}'s "
        f"| BLEU |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        median = statistics.median(r.seconds)
        within = statistics.median(r.seconds_within)
        settings = ", ".join(f"{k} {v}" for k, v in r.settings.items())
        texts = [tokenizer.decode(tokens) for tokens in r.tokens]
        cells = [
            f"{r.name} ({settings})" if settings else r.name,
            str(len(r.seconds)),
            f"{median:.2f} ({min(r.seconds):.2f}–{max(r.seconds):.2f})",
            f"{within:.3f}",
            f"{len(sentences) / within:.1f}",
            f"{median / first:.2f}",
            agreement(r, reference),
            f"{bleu(texts, references):.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _first_line(command: list[str], prefix: str = "") -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    except FileNotFoundError:
        return "unknown"
    lines = done.stdout.splitlines()
    found = (line for line in lines if line.startswith(prefix))
    return next(found, "unknown").removeprefix(prefix).strip()


def machine(args: argparse.Namespace) -> str:
    cpu = _first_line(["lscpu"], "Model name:")
    if not args.gpu:
        return cpu
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return f"{_first_line(query)}, {cpu}"


def circumstances(args: argparse.Namespace, num_sentences: int) -> str:
    """Machine, versions, sizes and command: what a figure is quoted with."""
    packages = ["transformers", "torch", "sacrebleu"]
    packages += [] if args.gpu else ["ctranslate2"]
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    commit = _first_line(["git", "describe", "--always", "--dirty"])
    weights = (args.model / "model.safetensors").stat().st_size
    return "\n".join(
        [
            f"- machine: {machine(args)}, "
            f"{args.threads} cores of {os.cpu_count()}, {platform.platform()}; "
            f"load at the end {load}",
            f"- versions: espalier {commit}, Python {platform.python_version()}, "
            + ", ".join(f"{p} {version(p)}" for p in packages),
            f"- sizes: {num_sentences // args.copies} sentences, each {args.copies} times, "
            f"{common.NUM_BEAMS} beams, at most {common.MAX_NEW_TOKENS} new tokens, "
            f"{'dtypes as said' if args.gpu else 'float32'}, "
            f"{args.model.name} ({weights / 1e6:.1f} MB of bf16 weights)",
            f"- command: `python -m tools.peers.compare {shlex.join(sys.argv[1:])}`",
            "- espalier: the whole process, loading included; peers: inside their "
            "generation calls only, loading excluded",
        ]
    )


def parse_args() -> argparse.Namespace:
    parser = common.comparison_parser(__doc__)
    add = parser.add_argument
    add("--gpu", action="store_true", help="compare on a GPU")
    add("--systems", nargs="+", choices=sorted({*SYSTEMS, *GPU_SYSTEMS}))
    add("--espalier", type=Path, help="default: of preset release, or cuda")
    add("--rounds", type=int, default=3)
    add("--repeats", type=int, default=1, help="of transformers, within a round")
    args = parser.parse_args()
    known, preset = (GPU_SYSTEMS, "cuda") if args.gpu else (SYSTEMS, "release")
    args.systems = args.systems or list(known)
    args.copies = args.copies or (20 if args.gpu else 1)
    program = args.espalier or ROOT / "build" / preset / "bin" / "espalier"
    args.espalier = program.resolve()
    if unknown := set(args.systems) - set(known):
        parser.error(f"not compared here: {', '.join(sorted(unknown))}")
    if not args.espalier.is_file():
        parser.error(f"no program at {args.espalier}; build it, or choose --systems")
    return args


def main() -> None:
    args = parse_args()
    use_cores(args.threads)
    sentences = common.read_sentences(args)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        systems.write_requests(sentences, work / "requests.jsonl")
        results = measure(args, work)
    print(table(results, sentences, Tokenizer(args.model)))
    print()
    print(circumstances(args, len(sentences)))


if __name__ == "__main__":
    main()

"""The systems that are compared: how each is run once, and what came out."""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.embedded_model import ROOT, read_jsonl, write_jsonl
from tools.peers import common


@dataclass
class Measured:
    """What a system's runs have shown so far."""

    name: str
    seconds: list[float] = field(default_factory=list)
    # Without starting and loading; of peers, who are timed like that, the same.
    seconds_within: list[float] = field(default_factory=list)
    tokens: list[list[int]] = field(default_factory=list)  # of the last run, by id
    settings: dict[str, Any] = field(default_factory=dict)


MAX_RUNNING = 1024  # requests that run together on a GPU

# Runs a system once, and adds to what it has shown.
System = Callable[[argparse.Namespace, Path, Measured], None]


def _execute(command: list[str]) -> str:
    """Runs a command and returns its standard error."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        sys.exit(f"{command} failed with {done.returncode}:\n{done.stderr}")
    return done.stderr


def _best_tokens(line: dict[str, Any]) -> list[int]:
    if "error" in line:
        sys.exit(f"espalier answered request {line['id']}: {line['error']}")
    return line["hypotheses"][0]["tokens"]


def write_requests(sentences: list[dict[str, Any]], path: Path) -> None:
    params = {
        "num_beams": common.NUM_BEAMS,
        "max_new_tokens": common.MAX_NEW_TOKENS,
    }
    write_jsonl(
        path,
        (
            {"id": i, "prompt": row["text"], "params": params}
            for i, row in enumerate(sentences)
        ),
    )


def _seconds_within(figures: str) -> float:
    """Of what `espalier --figures` prints."""
    match = re.search(r"requests? in ([\d.]+) s:", figures)
    if match is None:
        sys.exit(f"no figures of a run: {figures}")
    return float(match[1])


def run_espalier(device: str, dtype: str) -> System:
    """The whole process, loading included: to espalier's disadvantage."""

    def run(args: argparse.Namespace, work: Path, measured: Measured) -> None:
        output = work / "espalier.jsonl"
        files = ["--input", str(work / "requests.jsonl"), "--output", str(output)]
        command = [str(args.espalier), "batch", "-m", str(args.model), *files]
        command += ["--figures", "--device", device, "--dtype", dtype]
        if device == "cpu":
            command += ["--threads", str(args.threads)]
        else:
            command += ["--max-running", str(MAX_RUNNING)]
            measured.settings = {"dtype": dtype}
        start = time.perf_counter()
        figures = _execute(command)
        measured.seconds.append(time.perf_counter() - start)
        measured.seconds_within.append(_seconds_within(figures))
        lines = sorted(read_jsonl(output), key=lambda line: line["id"])
        measured.tokens = [_best_tokens(line) for line in lines]

    return run


def _run_peer(module: str, options: list[str], work: Path, measured: Measured) -> None:
    output, timing = work / "peer.jsonl", work / "timing.json"
    files = ["--output", str(output), "--timing", str(timing)]
    _execute([sys.executable, "-m", f"tools.peers.{module}", *options, *files])
    result = json.loads(timing.read_text(encoding="utf-8"))
    measured.seconds += result["seconds"]
    measured.seconds_within += result["seconds"]
    measured.settings = result["settings"]
    measured.tokens = [line["tokens"] for line in read_jsonl(output)]


def _shared_options(args: argparse.Namespace) -> list[str]:
    options = ["--model", args.model, "--sentences", args.sentences]
    options += ["--threads", args.threads, "--copies", args.copies]
    if args.limit:
        options += ["--limit", args.limit]
    return [str(option) for option in options]


def run_transformers(
    batch: int, device: str = "cpu", dtype: str = "float32"
) -> System:
    def run(args: argparse.Namespace, work: Path, measured: Measured) -> None:
        options = [*_shared_options(args), "--batch", str(batch)]
        options += ["--device", device, "--dtype", dtype]
        options += ["--repeats", str(args.repeats)]
        _run_peer("transformers_generate", options, work, measured)

    return run


def run_ctranslate2(args: argparse.Namespace, work: Path, measured: Measured) -> None:
    """Tries the settings out in the first round, which does not count."""
    options = _shared_options(args)
    if not measured.settings:
        _run_peer("ctranslate2_generate", [*options, "--repeats", "2"], work, measured)
        measured.seconds.clear()
        measured.seconds_within.clear()
    options += ["--inter-threads", str(measured.settings["inter_threads"])]
    options += ["--max-batch-size", str(measured.settings["max_batch_size"])]
    _run_peer("ctranslate2_generate", options, work, measured)


REFERENCE = "transformers"
SYSTEMS: dict[str, System] = {
    "espalier": run_espalier("cpu", "f32"),
    "ctranslate2": run_ctranslate2,
    "transformers-batch": run_transformers(batch=32),
    REFERENCE: run_transformers(batch=1),
}
GPU_SYSTEMS: dict[str, System] = {
    "espalier": run_espalier("cpu", "f32"),
    "espalier-gpu": run_espalier("cuda", "bf16"),
    "espalier-gpu-f32": run_espalier("cuda", "f32"),
    "transformers-gpu-64": run_transformers(64, "cuda", "bfloat16"),
    "transformers-gpu-500": run_transformers(500, "cuda", "bfloat16"),
}
# Slow, or slow to start: these run in the first round only.
ONCE = {REFERENCE, "transformers-gpu-64", "transformers-gpu-500"}

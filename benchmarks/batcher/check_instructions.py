"""Counts the instructions of a scheduler's step, and compares them with the
record beside this file: more than 5% off either way is an error, so that what
makes steps dearer is seen, and what makes them cheaper is recorded.

    check_instructions.py PROGRAM            compares
    check_instructions.py PROGRAM --record   writes the record

PROGRAM is scheduler_steps. Counts depend on the compiler, so there is a record
for each. Exit code 77, and a line that says why: no valgrind, or no record of
this compiler.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

RECORD = Path(__file__).with_name("scheduler_instructions.json")
TOLERANCE = 0.05
# Requests, and beams of each. With an encoder each request has a source.
CASES = {
    "256 x 1": ("256", "1"),
    "64 x 4": ("64", "4"),
    "4 x 64": ("4", "64"),
    "256 x 1 with an encoder": ("256", "1", "encoder"),
}
FEW, MANY = 10, 42  # steps: the difference is 32, two pages of 16 tokens


def count(program: str, steps: int, requests: str, beams: str, *encoder: str) -> int:
    """Instructions within Plan and Advance, setting up included."""
    run = subprocess.run(
        [
            "valgrind",
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--collect-atstart=no",
            "--toggle-collect=espalier::Scheduler::Plan()",
            "--toggle-collect=espalier::Scheduler::Advance(absl::*",
            program,
            requests,
            beams,
            str(steps),
            *encoder,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    collected = re.search(r"Collected : (\d+)", run.stderr)
    if collected is None or int(collected[1]) == 0:
        sys.exit(f"valgrind counted nothing:\n{run.stderr}")
    return int(collected[1])


def skip(why: str) -> None:
    print(f"SKIPPED: {why}")
    sys.exit(77)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("program", metavar="PROGRAM", help="scheduler_steps")
    parser.add_argument(
        "--record", action="store_true", help="write the record, compare nothing"
    )
    return parser.parse_args()


def main(program: str, records: bool) -> None:
    if shutil.which("valgrind") is None:
        skip("no valgrind; apt-get install valgrind")
    compiler = subprocess.run(
        [program], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not compiler.endswith(" release"):
        skip(f"not a release build: {compiler}")
    counts = {
        name: (count(program, MANY, *case) - count(program, FEW, *case))
        // (MANY - FEW)
        for name, case in CASES.items()
    }
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    print(f"{compiler}: instructions a step: {counts}; recorded: "
          f"{record.get(compiler)}")
    if records:
        record[compiler] = counts
        RECORD.write_text(json.dumps(record, indent=2) + "\n")
        return
    if compiler not in record:
        skip(f"{RECORD.name} has no counts of {compiler}; --record adds them")
    off = {
        case: round(counts[case] / recorded - 1, 3)
        for case, recorded in record[compiler].items()
        if abs(counts[case] / recorded - 1) > TOLERANCE
    }
    if off:
        sys.exit(f"more than {TOLERANCE:.0%} off: {off}; if that is meant: --record")


if __name__ == "__main__":
    args = parse_args()
    main(args.program, args.record)

#!/usr/bin/env python3
"""Fails where an include points up, to another room of the same floor, or to a
room that its own never includes.

    tools/check_layers.py [ROOT]

The rooms and their floors are those of the pictures in docs/architecture.md,
the fenced blocks with lines " floor 1   ...". A floor 2.3 is inside a room of
floor 2: other rooms of floor 2 stand beside all of it, and so do rooms inside two
folders of one floor where the folder around both is of another: executor/host/ and
executor/cuda/draft/, in executor/. A file belongs to the
room with the longest name that its path begins with, and every folder with
sources must belong to one. Tests, benchmarks and tools may include anything.
Lines " never ROOM includes ROOM..." of these blocks forbid more.
"""

import os
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

SOURCES = {".h", ".cc", ".cu", ".cuh"}
UNCHECKED = {"tests", "benchmarks", "tools", "build", ".git"}
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
ROOM = re.compile(r"^ (?:floor ([\d.]+) +| {10,})([a-z_]+(?:/[a-z_]+)*/)(?: |$)")

NEVER = re.compile(r"^ never ([a-z_/]+/) +includes ([a-z_/ ]+)$")
# Includes that docs/architecture.md forbids and that are there. An entry whose
# include is gone is a fault, so the list only gets shorter.
KNOWN = {
    ("exec_request/cuda_model.h", "kernels/attention/cuda_attention.h"),
    ("exec_request/diverse_choice.h", "kernels/select/select.h"),
    ("exec_request/draft_tree.h", "kernels/logits/candidate.h"),
    ("exec_request/plan_drafts.h", "kernels/verify/verified_draft.h"),
    ("exec_request/step_plan.h", "kernels/logits/score_edits.h"),
    ("exec_request/step_plan.h", "kernels/logits/score_processors.h"),
    ("exec_request/step_plan.h", "kernels/sample/sample.h"),
    ("exec_request/step_plan.h", "kernels/select/select.h"),
    ("exec_request/step_plan.h", "kernels/verify/verify.h"),
    ("exec_request/surviving_candidates.h", "kernels/logits/candidate.h"),
}

Floor = tuple[int, ...]


def read_floors(text: str) -> dict[str, Floor]:
    """The floor of each room of the pictures in `text`, by the room's name."""
    floors: dict[str, Floor] = {}
    for block in re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        floor = None
        for line in block.splitlines():
            match = ROOM.match(line)
            if not match:
                continue
            if match[1]:
                floor = tuple(int(part) for part in match[1].split("."))
            if floor is not None:
                floors[match[2]] = floor
    if (1,) not in floors.values():
        raise ValueError("no picture of rooms with their floors")
    return floors


def read_nevers(text: str) -> list[tuple[str, str]]:
    """Pairs of a room and one that it never includes, of the blocks in `text`."""
    return [
        (match[1], forbidden)
        for block in re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
        if (match := NEVER.match(line))
        for forbidden in match[2].split()
    ]


def room_of(path: str, floors: dict[str, Floor]) -> str | None:
    rooms = [room for room in floors if path.startswith(room)]
    return max(rooms, key=len, default=None)


def files_of(root: Path) -> list[str]:
    """What git tracks; where there is no git, all files."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True,
                                capture_output=True, text=True).stdout
        return [name for name in listed.split("\0") if (root / name).is_file()]
    return [path.relative_to(root).as_posix() for path in root.rglob("*")]


def where(other: str, room: str, floors: dict[str, Floor]) -> str:
    """Where `other` is, seen from `room`."""
    own, its = floors[room], floors[other]
    parent = room_of(os.path.commonprefix([room, other]), floors)
    if own[0] == its[0] and (parent is None or floors[parent][0] != own[0]):
        return "beside"
    return "below" if its < own else "above" if its > own else "beside"


def find_faults(root: Path,
                known: Collection[tuple[str, str]] = ()) -> list[str]:
    text = (root / "docs/architecture.md").read_text()
    floors = read_floors(text)
    nevers = read_nevers(text)
    faults = []
    found = set()
    for room in floors:
        if not (root / room).is_dir():
            faults.append(f"docs/architecture.md: there is no {room}")
    for path in sorted(files_of(root)):
        top = path.split("/")[0]
        if Path(path).suffix not in SOURCES or top in UNCHECKED:
            continue
        room = room_of(path, floors)
        if room is None:
            faults.append(f"{path}: in no room of docs/architecture.md")
            continue
        for included in INCLUDE.findall((root / path).read_text()):
            other = room_of(included, floors)
            if other is None or other == room:
                continue
            way = where(other, room, floors)
            if way != "below":
                faults.append(
                    f"{path}: includes {included}; {other} is {way} it")
            for own, forbidden in nevers:
                if not (path.startswith(own) and included.startswith(forbidden)):
                    continue
                found.add((path, included))
                if (path, included) not in known:
                    faults.append(f"{path}: includes {included}; "
                                  f"{own} never includes {forbidden}")
    faults += [f"tools/check_layers.py: {path} no longer includes {included}"
               for path, included in sorted(set(known) - found)]
    return faults


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1])
    faults = find_faults(root, KNOWN)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

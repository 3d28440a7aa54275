#!/usr/bin/env python3
"""Checks the subjects of commits.

    tools/check_commits.py [ROOT]

A subject begins with one of VERBS and has at most MAX_LENGTH characters. Every
commit after BASE that the checkout has is checked, but for merges, whose
subjects git writes, and KNOWN_FAULTS. A shallow clone may end before BASE; its
commits are then all checked. Without a git checkout, or if the history is another
one, nothing is checked, and the reason is printed.
"""

import re
import subprocess
import sys
from pathlib import Path

BASE = "82703d07351b997f131cd289b72b688c402558d0"
VERBS = ("Add", "Fix", "Remove", "Rename", "Move", "Speed up", "Document")
MAX_LENGTH = 72
# Commits that landed before this check, which only new history could change.
KNOWN_FAULTS = {
    "5cb4b98e16570b93c55b3c70eae3edaf0b7935e3",  # 74 characters
}
BEGINNING = re.compile(f"({'|'.join(VERBS)}) [^ ]")


class CannotCheckError(Exception):
    """The reason why there are no commits to check."""


def run_git(root: Path, *arguments: str) -> str:
    try:
        return subprocess.run(["git", *arguments], cwd=root, check=True,
                              capture_output=True, encoding="utf-8",
                              errors="replace").stdout
    except FileNotFoundError as error:
        raise CannotCheckError("git is not installed") from error
    except subprocess.CalledProcessError as error:
        raise CannotCheckError(error.stderr.strip()) from error


def has_commit(root: Path, commit: str) -> bool:
    try:
        run_git(root, "cat-file", "-e", f"{commit}^{{commit}}")
        return True
    except CannotCheckError:
        return False


def read_subjects(root: Path, base: str) -> list[tuple[str, str]]:
    """Returns (hash, subject) of the commits after `base`, newest first.
    Raises CannotCheckError."""
    if not (root / ".git").exists():
        raise CannotCheckError(f"{root} is not a git checkout")
    is_shallow = run_git(root, "rev-parse", "--is-shallow-repository").strip()
    commits = f"{base}..HEAD"
    if not has_commit(root, base):
        if is_shallow != "true":
            raise CannotCheckError(f"the history has no commit {base[:8]}")
        commits = "HEAD"
    log = run_git(root, "log", "--no-merges", "--format=%H %s", commits)
    return [(line.partition(" ")[0], line.partition(" ")[2])
            for line in log.split("\n") if line]


def find_faults(subjects: list[tuple[str, str]]) -> list[str]:
    faults = []
    for commit, subject in subjects:
        if commit in KNOWN_FAULTS:
            continue
        if not BEGINNING.match(subject):
            faults.append(f"{commit[:8]} must begin with {', '.join(VERBS[:-1])} or "
                          f"{VERBS[-1]}: {subject}")
        if len(subject) > MAX_LENGTH:
            faults.append(f"{commit[:8]} must have at most {MAX_LENGTH} characters, "
                          f"has {len(subject)}: {subject}")
    return faults


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    try:
        faults = find_faults(read_subjects(root, BASE))
    except CannotCheckError as reason:
        print(f"skipped: {reason}")
        return 0
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

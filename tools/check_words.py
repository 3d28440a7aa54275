#!/usr/bin/env python3
"""Fails where a name comes back that docs/glossary.md calls retired.

    tools/check_words.py [ROOT]

The names are the first column of the last table there. It reads every file
that git knows, but for the glossary itself.
"""

import re
import subprocess
import sys
from pathlib import Path

GLOSSARY = "docs/glossary.md"
TEXTS = {".h", ".cc", ".cu", ".cuh", ".md", ".py", ".sh", ".txt", ".cmake"}
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)


def retired_names(glossary: str) -> dict[str, str]:
    """What each retired name is called now."""
    return dict(ROW.findall(glossary.split("## Retired names")[1]))


def find_faults(root: Path, files: list[str]) -> list[str]:
    names = retired_names((root / GLOSSARY).read_text())
    word = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
    faults = []
    for name in files:
        if name == GLOSSARY or Path(name).suffix not in TEXTS:
            continue
        lines = (root / name).read_text().splitlines()
        for number, line in enumerate(lines, 1):
            faults += [f"{name}:{number}: {old} is called {names[old]} now"
                       for old in word.findall(line)]
    return faults


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1])
    files = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True,
                           capture_output=True, text=True).stdout
    faults = find_faults(root, [name for name in files.split("\0")
                                if (root / name).is_file()])
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

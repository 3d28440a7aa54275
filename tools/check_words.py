#!/usr/bin/env python3
"""Fails where a retired name comes back, or a comment is in dialect.

    tools/check_words.py [ROOT]
    tools/check_words.py --dialect [PATH ...]    list the sentences instead

Names first: tools/retired_names.txt has them.

A line there is `LetGo: Release`, the name and what stands in its place. Plurals
are retired with their names, and so are the tests and the files named after them: `LetGo`
retires LetGos, LetGoTest, LetGoGpuTest, let_go.h and let_go_test.cc. It reads
every file that git knows, and their paths, but for the list itself.

Then the dialect: comments that open with a pronoun or a genitive (OPENING), ones
behind code that begin with "of", and people in the machine (PEOPLE). All sources
together have DIALECT_CEILING of them. The check also fails if they have fewer, so
that the ceiling only falls.
"""

import re
import subprocess
import sys
from pathlib import Path

RETIRED = "tools/retired_names.txt"
TEXTS = {".h", ".cc", ".cu", ".cuh", ".md", ".py", ".sh", ".txt", ".cmake"}
LINE = re.compile(r"^([^#: ]+): (.+)$", re.MULTILINE)

SOURCES = {".h", ".cc", ".cu", ".cuh"}
OPENING = re.compile(r"/{2,3}\s*(What|Of|Whether|Where|How|Those|The same)\b")
TRAILING = re.compile(r"\S\s+// ?[Oo]f\b")
PEOPLE = re.compile(
    r"//.*\b([Gg]oes on|[Nn]obody|[Ss]omebody|[Aa]nybody|[Ww]hoever)\b")
DIALECT_CEILING = 0

SOURCE_ENDS = r"(?:_[a-z0-9_]+)?\.(?:h|cc|cu|cuh|py)\b"


def retired_names(text: str) -> dict[str, str]:
    """Returns the new name of each retired name."""
    return dict(LINE.findall(text))


def plural(name: str) -> str:
    if re.search(r"[^aeiou]y$", name):
        return name[:-1] + "ies"
    return name + ("es" if re.search(r"(s|x|ch|sh)$", name) else "s")


def file_stem(name: str) -> str:
    """Returns the stem of the file that declares `name`: let_go for LetGo."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_",
                  re.sub(r"^k(?=[A-Z])", "", name)).lower()


def forms(names: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the new names of all forms of names, and of all file stems."""
    words = {plural(old): plural(new) for old, new in names.items()} | names
    # A stem of one word may name anything.
    stems = {file_stem(old): file_stem(new) for old, new in names.items()
             if "_" in file_stem(old)}
    return words, stems


def find_faults(root: Path, files: list[str]) -> list[str]:
    words, stems = forms(retired_names((root / RETIRED).read_text()))
    word = re.compile(r"\b(" + "|".join(map(re.escape, words))
                      + r")(?:(?:Gpu|Errors|Invariants)?Test)?\b")
    stem = re.compile(r"(?<![A-Za-z0-9_])(" + "|".join(map(re.escape, stems))
                      + ")(?=" + SOURCE_ENDS + ")")
    faults = []
    for name in files:
        if name == RETIRED:
            continue
        faults += [f"{name}: {old} is called {stems[old]} now"
                   for old in stem.findall(name)]
        if Path(name).suffix not in TEXTS:
            continue
        lines = (root / name).read_text().splitlines()
        for number, line in enumerate(lines, 1):
            faults += [f"{name}:{number}: {old} is called "
                       f"{words.get(old) or stems[old]} now"
                       for old in word.findall(line) + stem.findall(line)]
    return faults


def find_dialect(root: Path, files: list[str]) -> list[str]:
    """Returns the comment lines in dialect, each with its file and line."""
    found = []
    for name in files:
        if Path(name).suffix not in SOURCES:
            continue
        in_comment = False
        for number, line in enumerate((root / name).read_text().splitlines(), 1):
            is_comment = line.lstrip().startswith("//")
            opens = is_comment and not in_comment and OPENING.match(line.strip())
            if opens or TRAILING.search(line) or PEOPLE.search(line):
                found.append(f"{name}:{number}: {line.strip()}")
            in_comment = is_comment
    return found


def check_ceiling(count: int, ceiling: int) -> list[str]:
    """Returns the fault of `count` comments in dialect, if there is one."""
    if count > ceiling:
        return [f"{count} comments are in dialect, at most {ceiling} may be: "
                "tools/check_words.py --dialect PATH lists them"]
    if count < ceiling:
        return [f"lower DIALECT_CEILING to {count}"]
    return []


def main() -> int:
    arguments = sys.argv[1:]
    listed = arguments[:1] == ["--dialect"]
    paths = arguments[1:] if listed else []
    root = Path(arguments[0] if arguments and not listed
                else Path(__file__).parents[1])
    files = subprocess.run(["git", "ls-files", "-z", "--", *paths], cwd=root,
                           check=True, capture_output=True, text=True).stdout
    names = [name for name in files.split("\0") if (root / name).is_file()]
    if listed:
        for line in find_dialect(root, names):
            print(line)
        return 0
    faults = find_faults(root, names)
    faults += check_ceiling(len(find_dialect(root, names)), DIALECT_CEILING)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

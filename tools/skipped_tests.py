#!/usr/bin/env python3
"""Prints which tests of the last run of CTest were skipped, wholly or in part,
and why.

    tools/skipped_tests.py BUILD_FOLDER

A test that is skipped says why in a line that begins with "SKIPPED:". The log of
CTest does not: there it has passed.
"""

import re
import sys
from pathlib import Path

LOG = "Testing/Temporary/LastTest.log"
TEST = re.compile(
    r'^\d+/\d+ Test: (?P<name>\S+)\n(?P<output>.*?)\n"(?P=name)" end time',
    re.MULTILINE | re.DOTALL)
# unittest says it in its own way.
REASON = re.compile(r"^(?:SKIPPED|skipped): (.+)$|\bskipped '(.+)'$",
                    re.MULTILINE)


def skipped_tests(log: str) -> dict[str, str]:
    """The reason of each test that was skipped."""
    skipped = {}
    for test in TEST.finditer(log):
        reason = REASON.search(test["output"])
        if reason:
            skipped[test["name"]] = reason[1] or reason[2]
    return skipped


def main() -> int:
    log = Path(sys.argv[1]) / LOG
    if not log.is_file():
        return 0
    skipped = skipped_tests(log.read_text(errors="replace"))
    if skipped:
        print("\nskipped, wholly or in part:")
    for name, reason in skipped.items():
        print(f"  {name}: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The calls with curl that documents and the help show are made.

    documented_curl_test.py PROGRAM CACHE [unittest's arguments]
                                                         (live/environment.py)

Of README.md and docs/: commands in blocks of code that begin with curl, with or
without "$ " before them, their lines joined where they end in a backslash. They
go to a server of the embedded model instead of to port 8000, and to one of the
encoder-decoder instead of to port 8001. Where lines follow a "$ curl", they are
what it prints, times and ids aside.
"""

import json
import re
import shutil
import subprocess
import sys
import unittest
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from live import environment
from live.replica import PATIENCE, Replica

DOCUMENTS = ("README.md", "docs/server.md", "docs/deploy.md")
SHOWN_URL = re.compile(r"(http://)?\b(127\.0\.0\.1|localhost):(8000|8001)\b")
# What differs from call to call.
VARYING = re.compile(
    r'"(id|created|request_id|cached_tokens)": ?("[^"]*"|\d+)')


@dataclass
class Shown:
    command: str
    output: str = ""


def shown_commands(text: str) -> list[Shown]:
    """What stands after "curl" in blocks of a document, or in a help text."""
    commands: list[Shown] = []
    is_in = goes_on = shows_output = False
    for line in text.splitlines():
        begins = re.match(r"\s*(\$ )?(curl .*)", line)
        if goes_on:
            commands[-1].command += "\n" + line
        elif begins:
            commands.append(Shown(begins[2]))
            shows_output = begins[1] is not None
            is_in = True
        elif line.startswith("```") or line.startswith("$ ") or not line:
            is_in = False
        elif is_in and shows_output:
            commands[-1].output += line + "\n"
        goes_on = (is_in and (begins is not None or goes_on)
                   and is_unfinished(commands[-1].command))
    return commands


def is_unfinished(command: str) -> bool:
    """Whether the shell would wait for another line."""
    return command.endswith("\\") or command.count("'") % 2 == 1


def parts(text: str) -> list[str | float]:
    """Words and numbers, which differ a little from machine to machine; what is
    wrapped in a document is one line in an answer."""
    text = re.sub(r"\s+", "", VARYING.sub(r'"\1": _', text))
    pieces = re.split(r"(-?\d+\.\d+)", text)
    return [round(float(piece), 3) if i % 2 else piece
            for i, piece in enumerate(pieces)]


class DocumentedCurlTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.servers = {
            "8000": cls.enterClassContext(Replica("--trace-requests", "10")),
            "8001": cls.enterClassContext(Replica(
                model=environment.ROOT / "models/en-fr-marian"))}

    def run_shown(self, shown: Shown) -> str:
        command, count = SHOWN_URL.subn(
            lambda found: self.servers[found[3]].url, shown.command)
        self.assertEqual(count, 1, shown.command)
        run = subprocess.run(
            ["sh", "-c", command.replace("curl ", "curl -sS --fail-with-body ",
                                         1)],
            capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return run.stdout

    def check(self, text: str) -> int:
        for shown in (commands := shown_commands(text)):
            with self.subTest(shown.command):
                printed = self.run_shown(shown)
                if printed.startswith("{"):
                    json.loads(printed)
                if shown.output:
                    self.assertEqual(parts(printed),
                                     parts(shown.output))
        return len(commands)

    def test_documents(self) -> None:
        texts = [(environment.ROOT / name).read_text() for name in DOCUMENTS
                 if (environment.ROOT / name).exists()]
        counts = [self.check(text) for text in texts]
        print("calls by document:", counts)
        self.assertGreaterEqual(sum(counts), 3)

    def test_help(self) -> None:
        run = subprocess.run([environment.program(), "serve", "--help"],
                             capture_output=True, text=True, check=True)
        self.assertGreaterEqual(self.check(run.stdout), 2)


if __name__ == "__main__":
    if shutil.which("curl") is None:
        environment.skip("no curl")
    environment.main()

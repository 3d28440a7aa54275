"""What the files of deploy/ ask of `espalier serve` is there.

    deploy_files_test.py PROGRAM CACHE [unittest's arguments]
                                                         (live/environment.py)

Their command lines are run, their probes asked, the metrics and libraries that
they name looked for. What runs containers and units is not there, and not
needed. docs/deploy.md names every file.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from live import environment
from live.replica import Replica, free_port

FOLDER = environment.ROOT / "deploy"
# Of a Debian system without any package added.
BASE_PACKAGES = {"libc6", "libgcc-s1", "libstdc++6"}


def deployed(name: str) -> str:
    return (FOLDER / name).read_text()


def kubernetes_arguments() -> list[str]:
    (text,) = re.findall(r"args: \[(-m,[^\]]*)\]", deployed("kubernetes.yaml"))
    return [word.strip().strip('"') for word in text.split(",")]


def on_this_machine(arguments: list[str]) -> list[str]:
    """Flags of a replica, less those that Replica gives."""
    changed = {"-m": None, "--port": None, "--host": "127.0.0.1"}
    flags = []
    rest = iter(arguments)
    for word in rest:
        if word in changed:
            next(rest)
            if changed[word]:
                flags += [word, changed[word]]
        else:
            flags.append(word)
    return flags


def with_dependencies(packages: set[str]) -> set[str]:
    found: set[str] = set()
    waiting = set(packages)
    while waiting:
        found |= waiting
        answer = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Depends}\\n", *sorted(waiting)],
            capture_output=True, text=True, check=False).stdout
        waiting = set(re.findall(r"(?:^|[,|] *)([\w.+-]+)", answer,
                                 re.MULTILINE)) - found
    return found


class DeployFilesTest(unittest.TestCase):
    def test_the_document_names_every_file(self) -> None:
        document = (environment.ROOT / "docs/deploy.md").read_text()
        for file in FOLDER.iterdir():
            self.assertIn(f"deploy/{file.name}", document)

    def test_what_kubernetes_asks(self) -> None:
        text = deployed("kubernetes.yaml")
        with Replica(*on_this_machine(kubernetes_arguments())) as replica:
            paths = re.findall(r"httpGet: \{path: (\S+),", text)
            self.assertEqual(sorted(paths), ["/health", "/ready", "/ready"])
            for path in paths:
                self.assertEqual(replica.get(path)[0], 200)
            metrics = replica.get("/metrics")[1]
            specs = re.findall(r'(?:RequestsSpec|UsageSpec|InfoSpec): "(.+)"',
                               text)
            self.assertEqual(len(specs), 4)
            for name in specs:
                self.assertRegex(metrics, rf"(?m)^{name}[ {{]")

    def test_what_systemd_runs(self) -> None:
        (line,) = re.findall(r"ExecStart=/usr/bin/espalier serve (.+)",
                             deployed("espalier.service"))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "api-keys").write_text("key-of-a-test\n")
            line = line.replace("${CREDENTIALS_DIRECTORY}", folder)
            with Replica(*on_this_machine(shlex.split(line))) as replica:
                self.assertEqual(replica.get("/health")[0], 200)
                self.assertEqual(replica.get("/v1/models")[0], 401)
                replica.drain()
                self.assertEqual(replica.wait(), 0)

    def test_a_container_is_healthy_while_it_answers(self) -> None:
        text = deployed("Dockerfile")
        (check,) = re.findall(r"HEALTHCHECK (?:.*\\\n)*\s*CMD (\[.+\])", text)
        command = json.loads(check)

        def healthy(port: int) -> bool:
            words = [word.replace("8000", str(port)) for word in command]
            return subprocess.run(words, capture_output=True,
                                  check=False).returncode == 0

        (entry,) = re.findall(r"ENTRYPOINT (\[.+\])", text)
        self.assertEqual(json.loads(entry), ["espalier", "serve"])
        (arguments,) = re.findall(r"^CMD (\[.+\])", text, re.MULTILINE)
        with Replica(*on_this_machine(json.loads(arguments))) as replica:
            self.assertTrue(healthy(replica.port))
        self.assertFalse(healthy(free_port()))

    def test_a_container_has_the_libraries(self) -> None:
        if shutil.which("dpkg-query") is None:
            self.skipTest("no dpkg")
        if b"libasan" in (linked := subprocess.run(
                ["ldd", environment.program()], capture_output=True,
                check=True).stdout):
            self.skipTest("a build for a sanitizer")
        libraries = re.findall(r"=> (/\S+)", linked.decode())
        files = {str(Path(file).resolve()) for file in libraries}
        owners = subprocess.run(["dpkg-query", "-S", *files],
                                capture_output=True, text=True, check=False)
        packages = set(re.findall(r"^([^:\s]+):", owners.stdout, re.MULTILINE))
        last_stage = deployed("Dockerfile").split("\nFROM ")[-1]
        listed = set(re.findall(r"^ +(lib[\w.-]+) \\$", last_stage,
                                re.MULTILINE))
        self.assertGreater(len(listed), 3)
        self.assertEqual(listed - packages, set())
        # What listed ones depend on is installed with them: libsndfile's codecs.
        self.assertEqual(packages - BASE_PACKAGES - with_dependencies(listed),
                         set())


if __name__ == "__main__":
    environment.main()

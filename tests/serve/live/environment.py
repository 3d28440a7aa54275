"""How a test of a server is run, and with which Python packages.

    TEST.py PROGRAM CACHE [unittest's arguments]

PROGRAM is espalier. CACHE is a folder for an environment with the packages of
requirements.txt, which is made once, from the package index; tests that run side
by side wait for the first. Exit code 77: what a test needs is not to be had
here, and it says so.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "models/en-fr"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
SKIPPED = 77
# As in tests/few_cases.h.
FEW_CASES = os.environ.get("ESPALIER_FEW_CASES") == "1"


def skip(why: str) -> NoReturn:
    print(f"SKIPPED: {why}")
    sys.exit(SKIPPED)


def program() -> Path:
    return Path(sys.argv[1]).resolve()


def cache() -> Path:
    return Path(sys.argv[2]).resolve()


def _install(folder: Path, requirements: Path) -> str:
    """Makes the environment; why it could not be made, or nothing."""
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", folder],
                          capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return made.stdout + made.stderr
    installed = subprocess.run(
        [folder / "bin/python", "-m", "pip", "--disable-pip-version-check",
         "install", "-q", "--retries", "1", "-r", requirements],
        capture_output=True, text=True, check=False)
    return installed.stderr if installed.returncode != 0 else ""


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no reason given"


def environment(requirements: Path = REQUIREMENTS) -> Path:
    """The folder of the environment; does not return where there is none."""
    folder = cache() / ("venv" if requirements == REQUIREMENTS
                        else requirements.stem)
    stamp = folder / "requirements.txt"
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != requirements.read_text():
            why = _install(folder, requirements)
            if why:
                print(why[-2000:])
                skip("cannot install the packages of "
                     f"{requirements.relative_to(ROOT)}: {_last_line(why)}")
            shutil.copy(requirements, stamp)
    return folder


def restart_with_packages(requirements: Path = REQUIREMENTS) -> None:
    """Goes on in the environment of these packages."""
    python = environment(requirements) / "bin/python"
    if Path(sys.prefix) == python.parents[1]:
        return
    os.execv(python, [str(python), "-B", *sys.argv])


def main() -> None:
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[3:]],
                  verbosity=2)

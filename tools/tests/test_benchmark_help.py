"""Programs of benchmarks/ that need Python alone say what they take."""

import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = [
    "benchmarks/batcher/check_instructions.py",
    "benchmarks/memory.py",
    "benchmarks/serve/serve.py",
    "benchmarks/speculation.py",
]


class BenchmarkHelpTest(unittest.TestCase):
    def test_help_is_answered(self):
        for program in PROGRAMS:
            with self.subTest(program):
                run = subprocess.run(
                    [sys.executable, "-B", ROOT / program, "--help"],
                    capture_output=True,
                    text=True,
                )
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertIn("usage: ", run.stdout)
                self.assertEqual(run.stderr, "")


if __name__ == "__main__":
    unittest.main()

"""Programs of benchmarks/ in Python say what they take: all of them, but those
that import what Python does not bring along (torch, NumPy), which need that to
say anything."""

import ast
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def is_local(module: str) -> bool:
    """Whether it is a module or package of the project."""
    at = ROOT / module
    return at.is_dir() or at.with_suffix(".py").exists()


def imports(program: pathlib.Path) -> set[str]:
    """Top-level names of the modules that it imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(program.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def programs() -> list[pathlib.Path]:
    """Those that need Python alone."""
    return [
        path
        for path in sorted((ROOT / "benchmarks").rglob("*.py"))
        if all(
            name in sys.stdlib_module_names or is_local(name)
            for name in imports(path)
        )
    ]


class BenchmarkHelpTest(unittest.TestCase):
    def test_programs_are_found(self):
        self.assertIn(ROOT / "benchmarks/memory.py", programs())
        self.assertNotIn(ROOT / "benchmarks/peers/torch_graph.py", programs())

    def test_help_is_answered(self):
        for program in programs():
            with self.subTest(str(program.relative_to(ROOT))):
                run = subprocess.run(
                    [sys.executable, "-B", program, "--help"],
                    capture_output=True,
                    text=True,
                    timeout=120,
                )
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertIn("usage: ", run.stdout)
                self.assertEqual(run.stderr, "")


if __name__ == "__main__":
    unittest.main()

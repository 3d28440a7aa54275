"""What the scripts for GPUs say of what they leave out, and of what fails.

Neither a GPU nor NVIDIA's tools are needed: programs, compute-sanitizer and
torch are stood in for by a few lines each.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Lists and runs tests as gtest does; a name says how its test ends.
TEST_PROGRAM = """
    import fnmatch, os, sys, time
    tests = {tests!r}
    flags = dict(a.split("=", 1) for a in sys.argv[1:] if "=" in a)
    asked = flags.get("--gtest_filter", os.environ.get("GTEST_FILTER", "*"))
    wanted, _, unwanted = asked.partition("-")
    def matches(name, patterns):
        return any(fnmatch.fnmatchcase(name, p) for p in patterns.split(":"))
    tests = [t for t in tests if matches(t, wanted or "*")
             and not matches(t, unwanted)]
    if "--gtest_list_tests" in sys.argv:
        for test in tests:
            print(test.split(".")[0] + ".\\n  " + test.split(".")[1])
        sys.exit()
    code = 0
    for test in tests:
        print("[ RUN      ]", test, flush=True)
        if "Hangs" in test:
            time.sleep(60)
        end = ("    FAILED  " if "Fails" in test else
               "  SKIPPED " if "Skips" in test else "       OK ")
        code |= "Fails" in test
        print("[" + end.strip().rjust(8) + " ]", test, "(7 ms)", flush=True)
    sys.exit(code)
"""

SANITIZER = """
    import subprocess, sys
    log = sys.argv[sys.argv.index("--log-file") + 1]
    program = next(i for i, a in enumerate(sys.argv) if a.endswith("_test"))
    code = subprocess.run(sys.argv[program:]).returncode
    found = 3 if "{reported}" in open(log.replace(".report", ".out")).read() else 0
    with open(log, "w") as file:
        print("========= ERROR SUMMARY:", found, "errors", file=file)
    sys.exit(code)
"""


class ScriptTest(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.bin = pathlib.Path(directory.name)

    def write(self, name: str, python: str) -> None:
        path = self.bin / name
        path.write_text(f"#!{sys.executable}\n" + textwrap.dedent(python))
        path.chmod(0o755)

    def run_script(self, script: str, *parts: str, **environment: str) -> None:
        path = f"{self.bin}:{os.environ['PATH']}"
        elsewhere = ROOT / "docs"
        self.done = subprocess.run(
            [os.path.relpath(ROOT / script, elsewhere), *parts],
            cwd=elsewhere,
            env={**os.environ, "PATH": path, "BIN": str(self.bin), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def assert_says(self, *texts: str) -> None:
        for text in texts:
            self.assertIn(text, self.done.stdout, self.done.stderr)


class SanitizeTest(ScriptTest):
    def sanitize(self, *tests: str, reported: str = "-", **environment: str) -> None:
        self.write("a_test", TEST_PROGRAM.format(tests=list(tests)))
        self.write("compute-sanitizer", SANITIZER.format(reported=reported))
        environment.setdefault("JOBS", "2")
        self.run_script(
            "tools/sanitize_gpu.sh", "initcheck", PROGRAMS="a_test", **environment
        )

    def test_a_clean_run_says_that_cases_are_left_out(self) -> None:
        self.sanitize("A.Ends", "B.Ends")
        self.assertEqual(self.done.returncode, 0, self.done.stdout)
        self.assertRegex(self.done.stdout, r"initcheck +2/2 +1 +0 +0")
        self.assert_says("Left out: most cases", "7 A.Ends")

    def test_with_all_cases_nothing_is_said_to_be_left_out(self) -> None:
        self.sanitize("A.Ends", ESPALIER_FEW_CASES="0")
        self.assertEqual(self.done.returncode, 0, self.done.stdout)
        self.assertNotIn("eft out", self.done.stdout)

    def test_tests_that_skip_are_named(self) -> None:
        self.sanitize("A.Ends", "A.Skips")
        self.assertEqual(self.done.returncode, 0, self.done.stdout)
        self.assert_says("nothing to test on this device: A.Skips")

    def test_a_test_that_fails_is_named(self) -> None:
        self.sanitize("A.Ends", "A.Fails", "B.Ends")
        self.assertEqual(self.done.returncode, 1)
        self.assert_says("initcheck, A.Fails: 1 tests failed")

    def test_reports_are_counted(self) -> None:
        self.sanitize("A.Ends", reported="A.Ends")
        self.assertEqual(self.done.returncode, 1)
        self.assert_says("initcheck, A.Ends: 3 reports")

    def test_what_does_not_end_is_named_and_has_failed(self) -> None:
        self.sanitize("A.Ends", "A.Hangs", "B.Ends", LIMIT="2")
        self.assertEqual(self.done.returncode, 1)
        self.assert_says("initcheck, A.Hangs: did not end")
        self.assertRegex(self.done.stdout, r"initcheck +1/3")

    def test_what_was_not_started_is_named_and_has_failed(self) -> None:
        self.sanitize("A.Ends", LIMIT="0")
        self.assertEqual(self.done.returncode, 1)
        self.assert_says("A.Ends: not started, for lack of time")

    def test_named_tests_alone_run_and_that_is_said(self) -> None:
        self.sanitize("A.Ends", "A.Fails", "*/B.Ends/0", TESTS="A.E*:*/B.*")
        self.assertEqual(self.done.returncode, 0, self.done.stdout)
        self.assertRegex(self.done.stdout, r"initcheck +2/2 ")
        self.assert_says("all tests but those of TESTS=A.E*:*/B.*")

    def test_each_test_is_in_one_part(self) -> None:
        names = [f"A.Ends{i}" for i in range(12)]
        ran = []
        for part in range(3):
            self.sanitize(*names, SHARD=f"{part}/3")
            self.assertEqual(self.done.returncode, 0, self.done.stderr)
            ran += [n for n in names if f"7 {n}\n" in self.done.stdout]
        self.assertEqual(sorted(ran), sorted(names))

    def test_parts_that_are_not_there_and_no_tests_are_refused(self) -> None:
        self.sanitize("A.Ends", SHARD="3/3")
        self.assertEqual(self.done.returncode, 2)
        self.assertIn("SHARD must be I/N", self.done.stderr)
        self.sanitize("A.Ends", TESTS="B.*")
        self.assertEqual(self.done.returncode, 1)
        self.assertIn("no test of a_test", self.done.stderr)

    def test_without_programs_it_says_how_to_build_them(self) -> None:
        self.write("compute-sanitizer", "")
        self.run_script("tools/sanitize_gpu.sh", PROGRAMS="a_test")
        self.assertEqual(self.done.returncode, 1)
        self.assertIn("cmake --build", self.done.stderr)

    def test_slow_tests_are_there(self) -> None:
        """A pattern for a suite that was renamed would order nothing."""
        script = (ROOT / "tools/sanitize_gpu.sh").read_text()
        patterns = script.partition("slow_tests=(")[2].partition(")")[0].split()
        self.assertTrue(patterns)
        tests = "".join(
            path.read_text() for path in (ROOT / "tests").rglob("*_gpu_test.cc")
        )
        for pattern in patterns:
            suite = pattern.strip("'").removeprefix("*/").partition(".")[0]
            self.assertIn(f"({suite},", tests)


@unittest.skipUnless(shutil.which("make"), "make demo needs make")
class DemoTest(ScriptTest):
    def demo(self, capability: str, cuda: str) -> None:
        gpu = f"print('{capability}, A GPU')" if capability else "raise SystemExit(9)"
        self.write("nvidia-smi", gpu)
        self.write("nvcc", f"print('Cuda compilation tools, release {cuda}, V1')")
        # What would install packages, and what would build.
        for name in ("dpkg-query", "apt-get", "apt-cache", "sudo", "cmake"):
            self.write(name, "print('builds'); raise SystemExit(1)")
        outside = {k: v for k, v in os.environ.items() if "MAKE" not in k}
        self.done = subprocess.run(
            ["make", "--no-print-directory", "-C", ROOT, "demo", "DEVICE=cuda"],
            env={
                **outside,
                "PATH": f"{self.bin}:{os.environ['PATH']}",
                "CUDACXX": "nvcc",
            },
            capture_output=True,
            text=True,
            check=False,
        )

    def test_what_is_missing_is_said_before_anything_is_built(self) -> None:
        for capability, cuda, missing in (
            ("", "13.0", "needs an NVIDIA GPU"),
            ("7.5", "13.0", "needs an NVIDIA GPU"),
            ("9.0", "12.3", "needs nvcc of CUDA 12.4"),
        ):
            self.demo(capability, cuda)
            self.assertNotEqual(self.done.returncode, 0)
            self.assertEqual(self.done.stdout, "")
            self.assertIn(missing, self.done.stderr)
            self.assertIn("DEVICE=cpu works everywhere", self.done.stderr)


class FindCudaTest(ScriptTest):
    def find(self, *lines: str) -> None:
        """As nvidia-smi on a machine with so many GPUs, one after the other."""
        prints = "; ".join(
            f"print({line!r}, flush=True); time.sleep(0.1)" for line in lines
        )
        self.write("nvidia-smi", f"import time; {prints}")
        self.run_script("tools/find_cuda.sh", "gpu")

    def test_the_first_of_several_gpus_is_found(self) -> None:
        self.find("9.0, A GPU", "9.0, Another", "9.0, A third")
        self.assertEqual(self.done.returncode, 0)
        self.assertEqual(self.done.stdout, "A GPU\n")

    def test_a_gpu_that_is_too_old_is_none(self) -> None:
        self.find("7.5, A GPU", "9.0, Another")
        self.assertNotEqual(self.done.returncode, 0)
        self.assertEqual(self.done.stdout, "")


class MeasureTest(ScriptTest):
    def measure(self, *parts: str, benchmark: str = "print('figures')") -> None:
        self.write("cuda_step_benchmark", benchmark)
        self.write("cuda_attention_benchmark", "print('of wide beams')")
        self.write("python", "")
        self.write("nvidia-smi", "")
        self.run_script(
            "benchmarks/run_gpu.sh", *parts, PYTHON=str(self.bin / "python")
        )

    def test_steps_without_a_peer_are_named(self) -> None:
        self.measure("step", "wide")
        self.assertEqual(self.done.returncode, 0, self.done.stdout)
        self.assert_says("figures", "draws samples, for 1b:64s1/128", "5,000 beams",
                         "of wide beams")

    def test_a_part_that_fails_is_named_and_the_others_run(self) -> None:
        self.measure("forward", "step")
        self.assertEqual(self.done.returncode, 1)
        self.assert_says("Failed or took longer", "cuda_forward_benchmark", "figures")

    def test_a_part_that_does_not_exist_is_refused(self) -> None:
        self.measure("steps")
        self.assertEqual(self.done.returncode, 2)
        self.assertIn("No part steps", self.done.stderr)


if __name__ == "__main__":
    unittest.main()

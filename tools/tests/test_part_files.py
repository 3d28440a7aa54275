"""Every source of the product has a header of its own, with its contract.

A class or a table cut into part files is read as one, and none of them says
what it promises.
"""

import fnmatch
import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

UNCHECKED = ("benchmarks/", "examples/", "tests/", "tools/")
# Several forms of what one header declares.
FORMS = [
    "espalier/*_backend.cc",  # ModelWeights and Backend of a device
    "kernels/*/*_cpu.cc",
    "kernels/*/*_reference.cc",
    "model/families/*.cc",  # model/model_family.h
]


def sources_without_header(names):
    files = set(names)
    return [name for name in sorted(files)
            if name.endswith(".cc") and not name.startswith(UNCHECKED)
            and name[:-len(".cc")] + ".h" not in files
            and not any(fnmatch.fnmatch(name, form) for form in FORMS)]


class PartFilesTest(unittest.TestCase):
    def setUp(self):
        if not (ROOT / ".git").exists():
            self.skipTest("not a checkout")
        listed = subprocess.run(
            ["git", "ls-files", "-z", "*.h", "*.cc"],
            cwd=ROOT, check=True, capture_output=True, text=True).stdout
        self.names = [n for n in listed.split("\0") if (ROOT / n).is_file()]

    def test_there_are_none(self):
        self.assertEqual(sources_without_header(self.names), [])

    def test_one_is_found(self):
        self.assertEqual(
            sources_without_header(["a/b.h", "a/b.cc", "a/b_rows.cc"]),
            ["a/b_rows.cc"])

    def test_each_form_has_sources(self):
        for form in FORMS:
            self.assertTrue(fnmatch.filter(self.names, form), form)


if __name__ == "__main__":
    unittest.main()

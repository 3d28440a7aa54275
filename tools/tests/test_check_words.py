"""Tests tools/check_words.py, and that the project has no fault."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools import check_words  # noqa: E402

RETIRED = """# What is called otherwise now.
LetGo: Release
"""


class CheckWordsTest(unittest.TestCase):

    def faults(self, **texts):
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            (root / "tools").mkdir()
            (root / check_words.RETIRED).write_text(RETIRED)
            for name, text in texts.items():
                (root / f"{name}.h").write_text(text)
            names = [check_words.RETIRED, *(f"{name}.h" for name in texts)]
            return check_words.find_faults(root, names)

    def test_a_retired_name_is_named_with_its_line(self):
        self.assertEqual(self.faults(a="int i;\nvoid LetGo();\n"),
                         ["a.h:2: LetGo is called Release now"])

    def test_a_plural_is_retired_with_its_name(self):
        self.assertEqual(self.faults(a="int LetGos;\n"),
                         ["a.h:1: LetGos is called Releases now"])

    def test_tests_named_after_it_are_retired_with_it(self):
        self.assertEqual(
            self.faults(a="TEST(LetGoTest, A)\nTEST(LetGoGpuTest, B)\n"),
            ["a.h:1: LetGo is called Release now",
             "a.h:2: LetGo is called Release now"])

    def test_a_file_named_after_it_is_retired_with_it(self):
        self.assertEqual(
            self.faults(let_go="", let_go_test='#include "base/let_go.h"\n'),
            ["let_go.h: let_go is called release now",
             "let_go_test.h: let_go is called release now",
             "let_go_test.h:1: let_go is called release now"])

    def test_other_files_and_variables_are_not(self):
        self.assertEqual(
            self.faults(outlet_go="", a="bool let_go; // outlet_go.h\n"), [])

    def test_comments_of_the_list_and_other_names_do_not_matter(self):
        self.assertEqual(self.faults(a="int page; void LetGoOf(); // What\n"), [])

    def test_the_project_has_no_fault(self):
        if not (ROOT / ".git").exists():
            self.skipTest("no checkout of git")
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True,
                                capture_output=True, text=True).stdout
        names = [name for name in listed.splitlines()
                 if (ROOT / name).is_file()]
        self.assertEqual(check_words.find_faults(ROOT, names), [])
        self.assertEqual(
            check_words.check_ceiling(
                len(check_words.find_dialect(ROOT, names)),
                check_words.DIALECT_CEILING), [])


class DialectTest(unittest.TestCase):

    def lines(self, text):
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            (root / "a.h").write_text(text)
            return [int(place.split(":")[1])
                    for place in check_words.find_dialect(root, ["a.h"])]

    def test_openings_of_a_comment_count(self):
        self.assertEqual(
            self.lines("// What it is.\nint a;\n/// Whether b.\nint b;\n"
                       "// The same for c.\nint c;\n"), [1, 3, 5])

    def test_later_lines_and_other_words_do_not(self):
        self.assertEqual(
            self.lines("// Returns\n// What it is.\n// Whatever.\n"
                       "// Often so.\nint a;\n"), [])

    def test_a_genitive_behind_code_counts(self):
        self.assertEqual(self.lines("int a;  // of b\nint b;  // offset\n"), [1])

    def test_people_in_the_machine_count(self):
        self.assertEqual(
            self.lines("// A group goes on.\nint a;\nint nobody;\n"), [1])

    def test_as_many_as_the_ceiling_are_no_fault(self):
        self.assertEqual(check_words.check_ceiling(0, 0), [])
        self.assertEqual(check_words.check_ceiling(7, 7), [])

    def test_more_than_the_ceiling_are_a_fault(self):
        self.assertEqual(
            check_words.check_ceiling(8, 7),
            ["8 comments are in dialect, at most 7 may be: "
             "tools/check_words.py --dialect PATH lists them"])

    def test_fewer_than_the_ceiling_lower_it(self):
        self.assertEqual(check_words.check_ceiling(5, 7),
                         ["lower DIALECT_CEILING to 5"])


if __name__ == "__main__":
    unittest.main()

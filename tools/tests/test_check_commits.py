"""Tests tools/check_commits.py, and that the project's commits have no fault."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools import check_commits  # noqa: E402


class SubjectsTest(unittest.TestCase):

    def faults(self, subject):
        return check_commits.find_faults([("1234567", subject)])

    def test_each_verb_may_begin(self):
        for verb in check_commits.VERBS:
            self.assertEqual(self.faults(f"{verb} page tables"), [], verb)

    def test_another_beginning_is_a_fault(self):
        for subject in ("Mend page tables", "fix page tables", "Fix: tables",
                        "Fixes page tables", "Speed page tables up", "Fix", ""):
            self.assertEqual(
                self.faults(subject),
                ["1234567 must begin with Add, Fix, Remove, Rename, Move, "
                 f"Speed up or Document: {subject}"])

    def test_72_characters_are_no_fault(self):
        self.assertEqual(self.faults("Add " + "é" * 68), [])

    def test_73_characters_are_a_fault(self):
        subject = "Add " + "e" * 69
        self.assertEqual(self.faults(subject),
                         ["1234567 must have at most 72 characters, has 73: "
                          + subject])

    def test_a_known_fault_is_none(self):
        for commit in check_commits.KNOWN_FAULTS:
            self.assertEqual(check_commits.find_faults([(commit, "Mend it")]), [])


@unittest.skipUnless(shutil.which("git"), "git is not installed")
class HistoryTest(unittest.TestCase):

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name) / "origin"
        self.root.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments):
        # Settings of the user, such as signing, do not matter.
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull,
                       "GIT_CONFIG_SYSTEM": os.devnull}
        return subprocess.run(
            ["git", "-c", "user.name=test", "-c", "user.email=test@example.com",
             *arguments], cwd=self.root, env=environment, check=True,
            capture_output=True, text=True).stdout.strip()

    def commit(self, subject):
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def subjects(self, base, root=None):
        return [subject for _, subject in
                check_commits.read_subjects(root or self.root, base)]

    def test_commits_after_the_base_are_read_newest_first(self):
        self.commit("Old one")
        base = self.commit("Old two")
        self.commit("Add a")
        self.commit("Mend b\n\nThe body is not read.")
        self.assertEqual(self.subjects(base), ["Mend b", "Add a"])

    def test_merges_are_not_read(self):
        base = self.commit("Old")
        self.git("checkout", "-q", "-b", "side")
        self.commit("Add side")
        self.git("checkout", "-q", "main")
        self.commit("Add main")
        self.git("merge", "-q", "-m", "Merge side", "side")
        self.assertEqual(sorted(self.subjects(base)), ["Add main", "Add side"])

    def test_a_shallow_clone_without_the_base_is_read_whole(self):
        base = self.commit("Old")
        for subject in ("Add a", "Add b", "Add c"):
            self.commit(subject)
        clone = self.root.parent / "clone"
        self.git("clone", "-q", "--depth", "2", self.root.as_uri(), str(clone))
        self.assertEqual(self.subjects(base, clone), ["Add c", "Add b"])

    def test_a_shallow_clone_with_the_base_is_read_up_to_it(self):
        self.commit("Older")
        base = self.commit("Old")
        self.commit("Add a")
        clone = self.root.parent / "clone"
        self.git("clone", "-q", "--depth", "2", self.root.as_uri(), str(clone))
        self.assertEqual(self.subjects(base, clone), ["Add a"])

    def test_another_history_is_not_checked(self):
        self.commit("Other")
        with self.assertRaisesRegex(check_commits.CannotCheckError,
                                    "the history has no commit 82703d07"):
            check_commits.read_subjects(self.root, check_commits.BASE)


class ProjectTest(unittest.TestCase):

    def test_without_a_checkout_nothing_is_checked(self):
        with tempfile.TemporaryDirectory() as directory:
            with self.assertRaisesRegex(check_commits.CannotCheckError,
                                        "is not a git checkout"):
                check_commits.read_subjects(pathlib.Path(directory),
                                            check_commits.BASE)

    def test_the_project_has_no_fault(self):
        try:
            subjects = check_commits.read_subjects(ROOT, check_commits.BASE)
        except check_commits.CannotCheckError as reason:
            self.skipTest(str(reason))
        self.assertEqual(check_commits.find_faults(subjects), [])


if __name__ == "__main__":
    unittest.main()

"""What tools/check_sass.py calls a fault, on code of a few lines."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tools import check_sass  # noqa: E402

EARLY = "PREEXIT ;"
WAIT = "ACQBULK ;"
LOAD = "LDG.E R0, desc[UR4][R2.64] ;"
STORE = "STG.E desc[UR4][R2.64], R5 ;"


def faults(symbol, *lines):
    return check_sass.check_kernel(symbol, list(lines))


class CheckSassTest(unittest.TestCase):

    def test_a_kernel_that_waits_first_is_right(self):
        self.assertEqual(faults("f::Scale(int)", EARLY, WAIT, LOAD, STORE), [])

    def test_a_kernel_that_never_waits_is_wrong(self):
        self.assertIn("never waits", faults("f::Scale(int)", EARLY, LOAD)[0])

    def test_only_kernels_that_are_declared_so_read_early(self):
        self.assertIn("reads ahead", faults("Scale(int)", LOAD, WAIT)[0])
        self.assertEqual(
            faults("void a::(anonymous namespace)::ReadTiles<float>(a::P, int)",
                   LOAD, WAIT), [])

    def test_no_kernel_writes_early(self):
        self.assertIn("writes ahead",
                      faults("ReadTiles<float>(P)", LOAD, STORE, WAIT)[0])

    def test_no_load_is_of_constant_memory(self):
        constant = "LDG.E.NA.128.CONSTANT R68, desc[UR4][R2.64] ;"
        self.assertIn("ld.global.nc",
                      faults("ReadTiles<float>(P)", WAIT, constant)[0])

    def test_a_barrier_lets_the_next_start_behind_its_wait(self):
        embed = ("void e::(anonymous namespace)::NormRow<1, "
                 "e::(anonymous namespace)::EmbeddedRow<float>, float>(int)")
        self.assertEqual(faults(embed, LOAD, WAIT, EARLY), [])
        self.assertIn("barrier", faults(embed, EARLY, WAIT)[0])

    def test_kernels_are_those_for_hopper(self):
        sass = """
        code for sm_80
                Function : Old(int)
        /*0000*/                   EXIT ;        /* 0x00 */
        code for sm_90a
                Function : New(int)
        /*0000*/                   ACQBULK ;     /* 0x00 */
"""
        self.assertEqual([(name, len(lines)) for name, lines
                          in check_sass.kernels_of(sass)], [("New(int)", 1)])


if __name__ == "__main__":
    unittest.main()

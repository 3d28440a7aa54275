"""The laws of parity: what counts as agreeing, ever more loosely."""

import unittest
from typing import Any

from tools.parity import compare

Row = dict[str, Any]


def row(*hypotheses: tuple[list[int], float | None]) -> Row:
    return {
        "hypotheses": [
            {"tokens": tokens, "text": str(tokens), "score": score}
            for tokens, score in hypotheses
        ]
    }


class CompareTest(unittest.TestCase):
    def test_equal_rows_agree_in_everything(self) -> None:
        rows = [row(([1, 2], -0.5), ([3], -0.7))]
        found = compare(rows, rows)
        counts = (found.identical, found.matching, found.same_tokens, found.same_best)
        self.assertEqual(counts, (1, 1, 1, 1))
        self.assertEqual(found.largest_difference, 0)

    def test_scores_within_the_tolerance_match_without_being_identical(self) -> None:
        found = compare([row(([1], -0.5))], [row(([1], -0.500001))])
        self.assertEqual((found.identical, found.matching), (0, 1))
        self.assertAlmostEqual(found.largest_difference, 2e-6, places=8)

    def test_a_worse_hypothesis_that_differs_leaves_the_best(self) -> None:
        found = compare(
            [row(([1], -0.5), ([2], -0.7))], [row(([1], -0.5), ([3], -0.7))]
        )
        self.assertEqual((found.matching, found.same_tokens), (0, 0))
        self.assertEqual(found.same_best, 1)

    def test_greedy_references_have_no_scores_to_differ_in(self) -> None:
        found = compare([row(([1], None)), row(([2], -1.0))], [row(([1], -0.3))] * 2)
        self.assertEqual((found.matching, found.same_best), (1, 1))
        self.assertEqual(found.largest_difference, 0)


if __name__ == "__main__":
    unittest.main()

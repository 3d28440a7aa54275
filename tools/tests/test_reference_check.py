"""Laws of reference_check: python -m unittest tools/tests/*.py"""

import copy
import unittest

from tools.reference_check import beams_match, log_probs_match


def line(*hypotheses: tuple[list[int], float | None]) -> dict:
    return {
        "hypotheses": [{"tokens": t, "score": s, "text": ""} for t, s in hypotheses]
    }


class BeamsMatch(unittest.TestCase):
    def test_scores_within_the_tolerance_match(self):
        self.assertTrue(beams_match(line(([7, 2], -2.0)), line(([7, 2], -2.0001))))

    def test_scores_beyond_the_tolerance_differ(self):
        self.assertFalse(beams_match(line(([7, 2], -2.0)), line(([7, 2], -2.001))))

    def test_a_missing_score_differs_from_a_number(self):
        self.assertTrue(beams_match(line(([7], None)), line(([7], None))))
        self.assertFalse(beams_match(line(([7], None)), line(([7], -1.0))))

    def test_near_ties_may_swap(self):
        self.assertTrue(
            beams_match(
                line(([7], -0.5), ([8], -0.50005)), line(([8], -0.50005), ([7], -0.5))
            )
        )

    def test_what_is_no_tie_keeps_its_order(self):
        self.assertFalse(
            beams_match(line(([7], -0.5), ([8], -0.6)), line(([8], -0.6), ([7], -0.5)))
        )

    def test_a_hypothesis_counts_once(self):
        self.assertFalse(
            beams_match(
                line(([7], -0.5), ([8], -0.50005)), line(([7], -0.5), ([7], -0.5))
            )
        )

    def test_missing_or_additional_hypotheses_differ(self):
        one, two = line(([7], -0.5)), line(([7], -0.5), ([8], -0.6))
        self.assertFalse(beams_match(one, two))
        self.assertFalse(beams_match(two, one))

    def test_other_text_differs(self):
        changed = line(([7], -0.5))
        changed["hypotheses"][0]["text"] = "other"
        self.assertFalse(beams_match(line(([7], -0.5)), changed))


class LogProbsMatch(unittest.TestCase):
    def setUp(self):
        self.expected = {
            "tokens": [1, 4],
            "top_tokens": [[7, 8], [9, 6]],
            "top_logprobs": [[-1.0, -1.00005], [-0.1, -3.0]],
        }
        self.actual = copy.deepcopy(self.expected)

    def test_near_ties_may_swap(self):
        self.actual["top_tokens"][0] = [8, 7]
        self.assertTrue(log_probs_match(self.expected, self.actual))

    def test_what_is_no_tie_keeps_its_order(self):
        self.actual["top_tokens"][1] = [6, 9]
        self.actual["top_logprobs"][1] = [-3.0, -0.1]
        self.assertFalse(log_probs_match(self.expected, self.actual))

    def test_another_token_differs(self):
        self.actual["top_tokens"][1][1] = 5
        self.assertFalse(log_probs_match(self.expected, self.actual))

    def test_another_value_differs(self):
        self.actual["top_logprobs"][1][1] = -3.001
        self.assertFalse(log_probs_match(self.expected, self.actual))

    def test_a_missing_position_differs(self):
        del self.actual["top_tokens"][1], self.actual["top_logprobs"][1]
        self.assertFalse(log_probs_match(self.expected, self.actual))


if __name__ == "__main__":
    unittest.main()

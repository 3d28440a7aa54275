"""Decides whether two reference lines say the same.

Hypotheses match when they are the same tokens and text in the same order, with
scores within 1e-4 relative; two hypotheses whose expected scores lie within
1e-4 of each other may swap. Of the best next tokens, those within 1e-4 relative
of each other may swap likewise.
"""

import math
from collections.abc import Iterator
from typing import Any

TOLERANCE = 1e-4

Row = dict[str, Any]


def _close(expected: float | None, actual: float | None) -> bool:
    if expected is None or actual is None:
        return expected is actual
    return math.isclose(expected, actual, rel_tol=TOLERANCE, abs_tol=1e-9)


def _may_swap(a: Row, b: Row) -> bool:
    if a["score"] is None or b["score"] is None:
        return False
    return abs(a["score"] - b["score"]) <= TOLERANCE


def _same(expected: Row, actual: Row) -> bool:
    # Models without a tokenizer have no texts.
    return all(expected.get(key) == actual.get(key) for key in ("tokens", "text"))


def beams_match(expected: Row, actual: Row) -> bool:
    """Whether `actual` has the hypotheses of `expected`."""
    wanted, got = expected["hypotheses"], actual["hypotheses"]
    unused = list(wanted)
    for place, hypothesis in zip(wanted, got):
        twin = next((h for h in unused if _same(h, hypothesis)), None)
        if twin is None or not _close(twin["score"], hypothesis["score"]):
            return False
        if twin is not place and not _may_swap(twin, place):
            return False
        unused.remove(twin)
    return len(wanted) == len(got)


def _positions(row: Row) -> Iterator[list[tuple[int, float]]]:
    for tokens, log_probs in zip(row["top_tokens"], row["top_logprobs"], strict=True):
        yield list(zip(tokens, log_probs, strict=True))


def _position_matches(
    expected: list[tuple[int, float]], actual: list[tuple[int, float]]
) -> bool:
    wanted = dict(expected)
    return len(expected) == len(actual) and all(
        _close(place, log_prob) and _close(wanted.get(token), log_prob)
        for (_, place), (token, log_prob) in zip(expected, actual)
    )


def log_probs_match(expected: Row, actual: Row) -> bool:
    """Whether `actual` has, after every position, the best tokens of `expected`."""
    if expected["tokens"] != actual["tokens"]:
        return False
    pairs = list(zip(_positions(expected), _positions(actual)))
    return len(pairs) == len(actual["tokens"]) and all(
        _position_matches(e, a) for e, a in pairs
    )

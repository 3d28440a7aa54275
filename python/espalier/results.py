"""What is in results beside the classes of the module."""

from __future__ import annotations

from typing import NamedTuple


class Logprob(NamedTuple):
    """The log-probability of a token in its place."""

    #: Nats.
    logprob: float
    #: 1 + the number of likelier tokens.
    rank: int

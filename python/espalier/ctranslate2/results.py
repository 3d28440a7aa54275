"""Results, under CTranslate2's names."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class TranslationResult:
    """The hypotheses of a source, best first."""

    hypotheses: list[list[str]]
    #: Empty unless `return_scores`.
    scores: list[float] = field(default_factory=list)


@dataclass
class GenerationResult:
    """The sequences of a prompt, best first."""

    sequences: list[list[str]]
    sequences_ids: list[list[int]]
    #: Empty unless `return_scores`.
    scores: list[float] = field(default_factory=list)


@dataclass
class ScoringResult:
    """Log-probabilities, in nats, of given tokens."""

    tokens: list[str]
    log_probs: list[float]


@dataclass
class GenerationStepResult:
    """A token of a greedy search or a sample, as it comes."""

    step: int
    batch_id: int
    token_id: int
    hypothesis_id: int
    token: str
    #: Nats; None unless asked for.
    log_prob: float | None
    is_last: bool

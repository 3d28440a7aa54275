"""What the peers share: the sentences, the options and the shape of a result."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools import embedded_model
from tools.embedded_model import Tokenizer, read_jsonl, write_jsonl

NUM_BEAMS = 4
MAX_NEW_TOKENS = 40


@dataclass(frozen=True)
class Output:
    """The best hypothesis of one sentence, an ending EOS included."""

    id: int
    tokens: list[int]
    score: float


@dataclass(frozen=True)
class Timing:
    """Seconds inside the generation call for all sentences, one entry a repeat."""

    seconds: list[float]
    num_tokens: int
    settings: dict[str, Any] = field(default_factory=dict)

    def describe(self, num_sentences: int) -> str:
        best = min(self.seconds)
        return (
            f"{best:.2f} s, {num_sentences / best:.1f} sentences/s, "
            f"{self.num_tokens / best:.0f} tokens/s, {self.settings}"
        )


def comparison_parser(description: str | None) -> argparse.ArgumentParser:
    """The options of everything that is compared."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=embedded_model.EN_FR)
    parser.add_argument("--sentences", type=Path, default=embedded_model.DEV_SENTENCES)
    parser.add_argument("--limit", type=int, help="use the first sentences only")
    parser.add_argument("--copies", type=int, help="of each sentence")
    parser.add_argument("--threads", type=int, default=2)
    return parser


def peer_parser(description: str | None) -> argparse.ArgumentParser:
    """The options of one peer's program."""
    parser = comparison_parser(description)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--output", type=Path, help="JSON lines: id, tokens, score")
    parser.add_argument(
        "--timing", type=Path, help="JSON: seconds, num_tokens, settings"
    )
    return parser


def read_sentences(args: argparse.Namespace) -> list[dict[str, Any]]:
    return read_jsonl(args.sentences)[: args.limit] * (args.copies or 1)


def read_prompts(args: argparse.Namespace) -> list[list[int]]:
    tokenizer = Tokenizer(args.model)
    return [tokenizer.prompt(row["text"]) for row in read_sentences(args)]


def report(args: argparse.Namespace, outputs: Sequence[Output], timing: Timing) -> None:
    """Prints the figures, and writes the files that were asked for."""
    print(timing.describe(len(outputs)))
    if args.output:
        write_jsonl(args.output, (asdict(output) for output in outputs))
    if args.timing:
        args.timing.write_text(json.dumps(asdict(timing)), encoding="utf-8")

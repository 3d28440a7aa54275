"""What the tools share about the embedded translators: prompts, text, JSON lines."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sentencepiece

ROOT = Path(__file__).resolve().parent.parent
EN_FR = ROOT / "models" / "en-fr"
DEV_SENTENCES = ROOT / "benchmarks" / "data" / "dev_sentences.jsonl"

BOS, EOS, PAD, ENGLISH, FRENCH = 1, 2, 3, 4, 5


class Tokenizer:
    """The SentencePiece model of a model directory, with the translators' prompts."""

    def __init__(self, model_dir: Path):
        self.pieces = sentencepiece.SentencePieceProcessor(
            model_file=str(model_dir / "tokenizer.model")
        )

    def prompt(self, text: str, source: int = ENGLISH) -> list[int]:
        """`<s> <en> text <fr>`: translate into the language that is not `source`."""
        target = FRENCH if source == ENGLISH else ENGLISH
        return [BOS, source, *self.pieces.encode(text), target]

    def decode(self, tokens: list[int]) -> str:
        """Text without BOS, EOS and padding; `<en>` and `<fr>` are ordinary pieces."""
        return self.pieces.decode(tokens)


def up_to_end(tokens: list[int], end_ids: Iterable[int] = (EOS,)) -> list[int]:
    """Drops what follows the first end token, which stays: the batch's padding."""
    ends = set(end_ids)
    for idx, token in enumerate(tokens):
        if token in ends:
            return tokens[: idx + 1]
    return tokens


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")

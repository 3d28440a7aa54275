"""Sentence pairs, cleaned and split."""

import random
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

Pair = tuple[str, str]  # English, French
References = dict[str, list[str]]  # an English sentence's French translations

NUM_TEST = 1000
NUM_DEV = 500

# French typography uses thin and no-break spaces; the models use one space.
_TYPOGRAPHY = str.maketrans({"\u202f": " ", "\xa0": " ", "\u2009": " ", "\u2019": "'"})


@dataclass(frozen=True)
class Splits:
    """No English sentence of `test` or `dev` occurs in `train`."""

    train: list[Pair]
    test: References
    dev: References


def normalize(text: str) -> str:
    text = unicodedata.normalize("NFC", text).translate(_TYPOGRAPHY)
    return re.sub(r"\s+", " ", text).strip()


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of `path` but the last, which is cut in the file we trained on."""
    pairs = []
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            fields = line.rstrip("\n").split("\t")
            if len(fields) >= 2:
                pairs.append((normalize(fields[0]), normalize(fields[1])))
    return pairs[:-1]


def _references(pairs: list[Pair], sentences: set[str]) -> References:
    found: References = {}
    for english, french in pairs:
        if english in sentences:
            found.setdefault(english, []).append(french)
    return found


def split(pairs: list[Pair]) -> Splits:
    """Holds out whole English sentences, with all their translations."""
    sentences = sorted({english for english, _ in pairs})
    random.Random(7).shuffle(sentences)
    test = set(sentences[:NUM_TEST])
    dev = set(sentences[NUM_TEST : NUM_TEST + NUM_DEV])
    train = [p for p in pairs if p[0] not in test and p[0] not in dev]
    return Splits(train, _references(pairs, test), _references(pairs, dev))

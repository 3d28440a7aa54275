"""Makes what transformers makes of sentences with models/en-fr-marian.

    python -m tools.make_marian_references tests/data/marian_beams.jsonl
    python -m tools.make_marian_references tests/data/marian_beams.jsonl --check

Sentences of benchmarks/data and their translations, as text: MarianTokenizer
makes prompts of them, `generate` of MarianMTModel in float64 hypotheses. As by
tools.make_family_models, whose code runs here, a request is kept only if small
noise on the logits changes none of its hypotheses. `--check` makes the
hypotheses of the file's requests anew and fails if they differ.
"""

import argparse
import random
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import MarianTokenizer
from transformers.utils import logging

from tools.embedded_model import DEV_SENTENCES, ROOT, read_jsonl, write_jsonl
from tools.make_family_models import TOLERANCE, Reference

Row = dict[str, Any]

MODEL = ROOT / "models" / "en-fr-marian"
NUM_REQUESTS = 40


class Translator:
    def __init__(self) -> None:
        self.reference = Reference(MODEL)
        self.tokenizer = MarianTokenizer.from_pretrained(MODEL)

    def prompt(self, request: Row) -> list[int]:
        target = request["template"].split("-")[1]
        return self.tokenizer(f">>{target}<< {request['prompt']}").input_ids

    def hypotheses(self, request: Row) -> list[Row]:
        found = self.reference.hypotheses(self.prompt(request), request["params"])
        decode = self.tokenizer.decode
        return [
            h | {"text": decode(h["tokens"], skip_special_tokens=True)} for h in found
        ]

    def row(self, request: Row) -> Row | None:
        """The request with its hypotheses, if they are stable."""
        prompt, hypotheses = self.prompt(request), self.hypotheses(request)
        if not self.reference.is_stable(prompt, request["params"], hypotheses):
            return None
        return request | {"prompt_tokens": prompt, "hypotheses": hypotheses}


def draw_request(rng: random.Random, sentences: list[Row]) -> Row:
    sentence = rng.choice(sentences)
    params = {"num_beams": rng.choice([1, 2, 4, 4, 8]), "max_new_tokens": 40}
    if params["num_beams"] > 1:
        params["length_penalty"] = rng.choice([0.0, 0.6, 1.0, 1.0, 2.0])
        params["early_stopping"] = rng.choice([False, True, "never"])
    english, french = sentence["text"], rng.choice(sentence["references"])
    template, text = rng.choice([("en-fr", english), ("fr-en", french)])
    return {"prompt": text, "template": template, "params": params}


def make(translator: Translator) -> list[Row]:
    rng, sentences, rows = random.Random(1), read_jsonl(DEV_SENTENCES), []
    while len(rows) < NUM_REQUESTS:
        row = translator.row(draw_request(rng, sentences))
        if row is not None:
            rows.append(row)
    return rows


def is_same(expected: list[Row], actual: list[Row]) -> bool:
    return all(
        (e["tokens"], e["text"]) == (a["tokens"], a["text"])
        and abs((e["score"] or 0) - (a["score"] or 0)) <= TOLERANCE
        for e, a in zip(expected, actual, strict=True)
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    translator = Translator()
    if not args.check:
        write_jsonl(args.file, make(translator))
        return 0
    rows = read_jsonl(args.file)
    same = [is_same(r["hypotheses"], translator.hypotheses(r)) for r in rows]
    print(f"{sum(same)} of {len(rows)} requests have the same hypotheses")
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())

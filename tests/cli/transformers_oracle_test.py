#!/usr/bin/env python3
"""Compares constrained beams with those of transformers.

    pip install torch transformers safetensors
    tests/cli/transformers_oracle_test.py build/release/bin/espalier models/en-fr

Both search the same items, all of one length, transformers by
prefix_allowed_tokens_fn: with few beams, and with one for each item. Where a package
is missing all of it is skipped (77).
"""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
    from transformers import AutoModelForCausalLM
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PROMPT = [1, 4, 502, 282, 283, 2707, 270, 5]
LENGTH = 3
BEAMS = [1, 4, 9, 30]


def draw_items():
    """40 items, of which many begin alike."""
    draw = random.Random(40)
    items = set()
    while len(items) < 40:
        items.add(tuple(300 + draw.randrange(n) for n in (6, 4, 900)))
    return sorted(items)


def search_with_espalier(program, model, items):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "items.jsonl")
        file.write_text("".join(f"{list(item)}\n" for item in items))
        lines = [{"prompt_tokens": PROMPT,
                  "params": {"constraint": {"items": "all"}, "num_beams": beams,
                             "num_return_sequences": beams,
                             "max_new_tokens": LENGTH}} for beams in BEAMS]
        run = subprocess.run(
            [program, "batch", "-m", model, "--items", f"all={file}"],
            input="\n".join(map(json.dumps, lines)), text=True,
            stdout=subprocess.PIPE, check=True)
    answers = sorted(map(json.loads, run.stdout.splitlines()),
                     key=lambda answer: answer["id"])
    return [[(tuple(h["tokens"]), h["score"]) for h in answer["hypotheses"]]
            for answer in answers]


def search_with_transformers(model, items):
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)

    def allowed(_, tokens):
        begun = tuple(tokens[len(PROMPT):].tolist())
        return sorted({item[len(begun)] for item in items
                       if item[:len(begun)] == begun})

    for beams in BEAMS:
        found = network.generate(
            torch.tensor([PROMPT]), num_beams=beams,
            num_return_sequences=beams, max_new_tokens=LENGTH,
            do_sample=False, prefix_allowed_tokens_fn=allowed,
            return_dict_in_generate=True, output_scores=True)
        texts = [tuple(row[len(PROMPT):]) for row in found.sequences.tolist()]
        scores = getattr(found, "sequences_scores", None)
        yield texts, None if scores is None else scores.tolist()


def main(program, model):
    items = draw_items()
    ours = search_with_espalier(program, model, items)
    theirs = search_with_transformers(model, items)
    for beams, own, (texts, scores) in zip(BEAMS, ours, theirs):
        assert [text for text, _ in own] == texts, (beams, own, texts)
        for (_, score), other in zip(own, scores or []):
            assert abs(score - other) < 1e-3, (beams, score, other)
        print(f"{beams} beams: {len(texts)} equal hypotheses")


if __name__ == "__main__":
    main(*sys.argv[1:])

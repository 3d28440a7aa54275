"""Makes requests whose parameters reach every rule of beam search.

A request draws its beams, length penalty, early stopping and length limit, and
at most one option more: one option at a time, so that a wrong line accuses one
rule. The limits are often too short for the translation, so that truncated
hypotheses occur; what an option bans is part of the greedy translation, so that
the ban is felt.
"""

import random
from collections.abc import Callable
from typing import Any

from tools.embedded_model import ENGLISH, EOS, FRENCH, Tokenizer

Row = dict[str, Any]
Translate = Callable[[list[int]], list[int]]

PERIOD = 262  # a second end token that comes before EOS in most sentences
OPTION_SHARE = 0.6


def _common_params(rng: random.Random) -> Row:
    return {
        "num_beams": rng.choice([1, 2, 3, 4, 4, 4, 5, 8]),
        "length_penalty": rng.choice([0.0, 0.6, 1.0, 1.0, 2.0]),
        "early_stopping": rng.choice([False, False, True, "never"]),
        "max_new_tokens": rng.choice([5, 16, 40, 40]),
    }


def _ban_words(rng: random.Random, greedy: list[int]) -> Row:
    words = [[greedy[0]], greedy[1:4]]
    return {"bad_words_ids": [word for word in words if word]}


def _lengthen(rng: random.Random, greedy: list[int]) -> Row:
    return {
        "min_new_tokens": rng.choice([6, 10]),
        "max_new_tokens": rng.choice([16, 40]),
    }


_OPTIONS: list[Callable[[random.Random, list[int]], Row]] = [
    lambda rng, greedy: {"repetition_penalty": rng.choice([0.9, 1.1, 1.3])},
    lambda rng, greedy: {"no_repeat_ngram_size": rng.choice([1, 2, 3])},
    lambda rng, greedy: {"eos_token_id": [EOS, PERIOD]},
    lambda rng, greedy: {"suppress_tokens": greedy[:2]},
    _ban_words,
    _lengthen,
]


def _params(rng: random.Random, greedy: list[int]) -> Row:
    params = _common_params(rng)
    if rng.random() < OPTION_SHARE:
        params |= rng.choice(_OPTIONS)(rng, greedy)
    return params


def _prompt(rng: random.Random, sentence: Row) -> tuple[str, int]:
    if rng.random() < 2 / 3:
        return sentence["text"], ENGLISH
    return rng.choice(sentence["references"]), FRENCH


def make_requests(
    sentences: list[Row],
    tokenizer: Tokenizer,
    translate: Translate,
    count: int,
    seed: int,
) -> list[Row]:
    """Draws `count` requests; `translate` is greedy search over a prompt."""
    rng = random.Random(seed)
    requests = []
    for sentence in rng.choices(sentences, k=count):
        text, source = _prompt(rng, sentence)
        prompt = tokenizer.prompt(text, source)
        greedy = translate(prompt)[:-1] or [PERIOD]
        requests.append(
            {
                "prompt_text": text,
                "prompt_tokens": prompt,
                "params": _params(rng, greedy),
            }
        )
    return requests


def make_sequences(
    sentences: list[Row], tokenizer: Tokenizer, count: int, seed: int
) -> list[Row]:
    """Draws `count` whole sequences: a prompt, one reference translation, EOS."""
    rng = random.Random(seed)
    return [
        {
            "tokens": tokenizer.prompt(sentence["text"])
            + tokenizer.pieces.encode(rng.choice(sentence["references"]))
            + [EOS]
        }
        for sentence in rng.sample(sentences, k=count)
    ]

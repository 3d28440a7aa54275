"""Shared by the tests of the package."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import espalier

SOURCE = Path(os.environ.get("ESPALIER_SOURCE_DIR", Path(__file__).parents[2]))
MODEL = SOURCE / "models" / "en-fr"
SENTENCES = [
    "How old are you?",
    "She is waiting for the train.",
    "I would like a cup of coffee, please.",
    "The weather was beautiful yesterday.",
    "Where is the station?",
]


@pytest.fixture(scope="session")
def llm() -> Iterator[espalier.LLM]:
    with espalier.LLM(MODEL, num_threads=1) as made:
        yield made

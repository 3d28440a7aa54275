"""Examples, and batches of similar length made of them."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from tools.embedded_model import ENGLISH, EOS, FRENCH, PAD, Tokenizer
from tools.training.corpus import Pair

LENGTH_JITTER = 3.0  # tokens; mixes neighbouring lengths from epoch to epoch


@dataclass(frozen=True)
class Example:
    prompt: np.ndarray  # token ids
    answer: np.ndarray  # with EOS

    def __len__(self) -> int:
        return len(self.prompt) + len(self.answer)


@dataclass(frozen=True)
class Batch:
    """What a model reads, what it is to say, and how much each token counts."""

    inputs: dict[str, torch.Tensor]  # arguments of its forward pass
    labels: torch.Tensor  # [rows, width], those of the logits at each place
    weights: torch.Tensor  # [rows, width] f32

    def _map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> "Batch":
        inputs = {name: function(tensor) for name, tensor in self.inputs.items()}
        return Batch(inputs, function(self.labels), function(self.weights))

    def pinned(self) -> "Batch":
        return self._map(torch.Tensor.pin_memory)

    def on(self, device: torch.device) -> "Batch":
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))


def encode_pairs(tokenizer: Tokenizer, pairs: list[Pair]) -> list[Example]:
    """Each pair twice: into French and into English."""
    encode = tokenizer.pieces.encode
    examples = []
    for english, french in pairs:
        examples += [
            (tokenizer.prompt(english, ENGLISH), [*encode(french), EOS]),
            (tokenizer.prompt(french, FRENCH), [*encode(english), EOS]),
        ]
    return [Example(np.array(p), np.array(a)) for p, a in examples]


def places(lengths: list[int], width: int) -> torch.Tensor:
    """The first `lengths[r]` places of row r, [rows, width] bool."""
    return torch.arange(width) < torch.tensor(lengths)[:, None]


def padded(rows: list[np.ndarray]) -> torch.Tensor:
    """Token ids, [len(rows), longest, rounded up to 4], PAD after a row's."""
    lengths = list(map(len, rows))
    filled = places(lengths, (max(lengths) + 3) // 4 * 4)
    ids = torch.full(filled.shape, PAD)
    ids.masked_scatter_(filled, torch.from_numpy(np.concatenate(rows)))
    return ids


def _make_batches(
    examples: list[Example], batch_tokens: int, rng: random.Random
) -> list[list[Example]]:
    """All examples in shuffled batches of similar length, `batch_tokens` at most."""
    batches: list[list[Example]] = []
    batch: list[Example] = []
    longest = 0
    lengths = list(map(len, examples))
    keys = [length + rng.random() * LENGTH_JITTER for length in lengths]
    for idx in sorted(range(len(examples)), key=keys.__getitem__):
        longest = max(longest, lengths[idx])
        if batch and longest * (len(batch) + 1) > batch_tokens:
            batches.append(batch)
            batch, longest = [], lengths[idx]
        batch.append(examples[idx])
    batches.append(batch)
    rng.shuffle(batches)
    return batches


def endless_batches(
    examples: list[Example],
    batch_tokens: int,
    collate: Callable[[list[Example]], Batch],
) -> Iterator[tuple[int, Batch]]:
    """Epoch and batch. An epoch is collated whole, ahead of its steps."""
    rng = random.Random(1)
    epoch = 0
    while True:
        batches = map(collate, _make_batches(examples, batch_tokens, rng))
        if torch.cuda.is_available():
            batches = (batch.pinned() for batch in batches)
        for batch in list(batches):
            yield epoch, batch
        epoch += 1

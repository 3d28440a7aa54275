"""The training loop: batches by length, a schedule by the clock."""

import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from tools.embedded_model import ENGLISH, EOS, FRENCH, PAD, Tokenizer
from tools.training.corpus import Pair
from tools.training.translator import Translator

# The prompt is learned too, a little: it teaches the source language.
PROMPT_WEIGHT = 0.2
LENGTH_JITTER = 3.0  # tokens; mixes neighbouring lengths from epoch to epoch
WARMUP_STEPS = 400
FINAL_RATE = 0.03  # of the peak learning rate
PRINT_EVERY = 1000


@dataclass(frozen=True)
class TrainingOptions:
    seconds: float
    learning_rate: float  # at its peak
    batch_tokens: int = 16384  # padding included
    label_smoothing: float = 0.1


@dataclass(frozen=True)
class Example:
    prompt: list[int]
    answer: list[int]  # with EOS

    def __len__(self) -> int:
        return len(self.prompt) + len(self.answer)


def encode_pairs(tokenizer: Tokenizer, pairs: list[Pair]) -> list[Example]:
    """Each pair twice: into French and into English."""
    encode = tokenizer.pieces.encode
    examples = []
    for english, french in pairs:
        examples += [
            Example(tokenizer.prompt(english, ENGLISH), [*encode(french), EOS]),
            Example(tokenizer.prompt(french, FRENCH), [*encode(english), EOS]),
        ]
    return examples


def make_batches(
    examples: list[Example], batch_tokens: int, rng: random.Random
) -> list[list[Example]]:
    """All examples in shuffled batches of similar length, `batch_tokens` at most."""
    batches: list[list[Example]] = []
    batch: list[Example] = []
    longest = 0
    for example in sorted(
        examples, key=lambda e: len(e) + rng.random() * LENGTH_JITTER
    ):
        longest = max(longest, len(example))
        if batch and longest * (len(batch) + 1) > batch_tokens:
            batches.append(batch)
            batch, longest = [], len(example)
        batch.append(example)
    batches.append(batch)
    rng.shuffle(batches)
    return batches


def collate(batch: list[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and loss weights, both [len(batch), longest, rounded up to 4]."""
    width = math.ceil(max(map(len, batch)) / 4) * 4
    ids = torch.full((len(batch), width), PAD)
    weights = torch.zeros(len(batch), width)
    for row, example in enumerate(batch):
        ids[row, : len(example)] = torch.tensor(example.prompt + example.answer)
        weights[row, 1 : len(example.prompt)] = PROMPT_WEIGHT
        weights[row, len(example.prompt) : len(example)] = 1
    if torch.cuda.is_available():
        return ids.pin_memory(), weights.pin_memory()
    return ids, weights


def endless_batches(
    examples: list[Example], batch_tokens: int
) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Epoch, ids and weights. An epoch is collated whole, ahead of its steps."""
    rng = random.Random(1)
    epoch = 0
    while True:
        for ids, weights in [
            collate(batch) for batch in make_batches(examples, batch_tokens, rng)
        ]:
            yield epoch, ids, weights
        epoch += 1


def learning_rate(peak: float, step: int, done: float) -> float:
    """Linear warm-up by steps, cosine decay by `done`, the share of time spent."""
    warmup = min(1.0, (step + 1) / WARMUP_STEPS)
    cosine = 0.5 * (1 + math.cos(math.pi * done))
    return peak * warmup * (cosine * (1 - FINAL_RATE) + FINAL_RATE)


def _loss(
    translator: Translator, ids: torch.Tensor, weights: torch.Tensor, smoothing: float
) -> torch.Tensor:
    with torch.autocast(translator.device.type, dtype=torch.bfloat16):
        logits = translator.model(input_ids=ids, use_cache=False).logits
    losses = F.cross_entropy(
        logits[:, :-1].float().flatten(0, 1),
        ids[:, 1:].flatten(),
        reduction="none",
        label_smoothing=smoothing,
    )
    wanted = weights[:, 1:]
    return (losses * wanted.flatten()).sum() / wanted.sum()


def _update(
    optimizer: torch.optim.Optimizer, model: torch.nn.Module, loss: torch.Tensor
) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def train(
    translator: Translator, examples: list[Example], options: TrainingOptions
) -> None:
    """Trains for `options.seconds`."""
    model = translator.model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=options.learning_rate,
        betas=(0.9, 0.98),
        weight_decay=0.05,
        fused=True,
    )
    start = time.monotonic()
    batches = endless_batches(examples, options.batch_tokens)
    for step, (epoch, ids, weights) in enumerate(batches):
        done = (time.monotonic() - start) / options.seconds
        if done >= 1:
            print(f"trained {epoch} epochs, {step} steps")
            return
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(options.learning_rate, step, done)
        ids = ids.to(translator.device, non_blocking=True)
        weights = weights.to(translator.device, non_blocking=True)
        loss = _loss(translator, ids, weights, options.label_smoothing)
        _update(optimizer, model, loss)
        if step % PRINT_EVERY == 0:
            print(f"epoch {epoch}, step {step}, loss {loss.item():.3f}")

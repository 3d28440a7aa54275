"""The training loop: a schedule by the clock."""

import math
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from tools.training.batches import Batch, Example, endless_batches
from tools.training.translator import Translator

WARMUP_STEPS = 400
FINAL_RATE = 0.03  # of the peak learning rate
PRINT_EVERY = 1000


@dataclass(frozen=True)
class TrainingOptions:
    seconds: float
    learning_rate: float  # at its peak
    batch_tokens: int = 16384  # padding included
    label_smoothing: float = 0.1


def learning_rate(peak: float, step: int, done: float) -> float:
    """Linear warm-up by steps, cosine decay by `done`, the share of time spent."""
    warmup = min(1.0, (step + 1) / WARMUP_STEPS)
    cosine = 0.5 * (1 + math.cos(math.pi * done))
    return peak * warmup * (cosine * (1 - FINAL_RATE) + FINAL_RATE)


def _loss(translator: Translator, batch: Batch, smoothing: float) -> torch.Tensor:
    with torch.autocast(translator.device.type, dtype=torch.bfloat16):
        logits = translator.model(**batch.inputs, use_cache=False).logits
    losses = F.cross_entropy(
        logits.float().flatten(0, 1),
        batch.labels.flatten(),
        reduction="none",
        label_smoothing=smoothing,
    )
    return (losses * batch.weights.flatten()).sum() / batch.weights.sum()


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
    batches = endless_batches(examples, options.batch_tokens, translator.collate)
    for step, (epoch, batch) in enumerate(batches):
        done = (time.monotonic() - start) / options.seconds
        if done >= 1:
            print(f"trained {epoch} epochs, {step} steps")
            return
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(options.learning_rate, step, done)
        loss = _loss(translator, batch.on(translator.device), options.label_smoothing)
        _update(optimizer, model, loss)
        if step % PRINT_EVERY == 0:
            print(f"epoch {epoch}, step {step}, loss {loss.item():.3f}")

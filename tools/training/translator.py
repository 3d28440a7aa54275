"""A Llama-architecture translator that is being trained."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from tools.embedded_model import BOS, EOS, PAD
from tools.training.batches import Batch, Example, padded, places

HEAD_DIM = 64
# The prompt is learned too, a little: it teaches the source language.
PROMPT_WEIGHT = 0.2


@dataclass(frozen=True)
class Shape:
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    intermediate_size: int
    dropout: float  # on embeddings and on what each block adds


def _config(shape: Shape, vocab_size: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=HEAD_DIM,
        intermediate_size=shape.intermediate_size,
        max_position_embeddings=1024,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        attention_dropout=0.0,
        initializer_range=0.02,
    )


class Translator:
    """The model, with the dropout that the architecture itself does not have."""

    def __init__(self, shape: Shape, vocab_size: int, device: str):
        self.device = torch.device(device)
        self.model = LlamaForCausalLM(_config(shape, vocab_size)).to(self.device)
        self._hooks = self._add_dropout(shape.dropout)

    def _add_dropout(self, probability: float) -> list:
        def drop(module, inputs, output):
            return F.dropout(output, probability, self.model.training)

        ends = ("o_proj", "down_proj", "embed_tokens")
        return [
            module.register_forward_hook(drop)
            for name, module in self.model.named_modules()
            if name.endswith(ends)
        ]

    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    @staticmethod
    def collate(batch: list[Example]) -> Batch:
        """Each token is the label of the one before it."""
        ids = padded([np.concatenate([e.prompt, e.answer]) for e in batch])
        labels = ids.roll(-1, dims=1)  # the last ones have no weight
        width = ids.shape[1]
        weights = places([len(example) - 1 for example in batch], width).float()
        weights[places([len(e.prompt) - 1 for e in batch], width)] = PROMPT_WEIGHT
        return Batch({"input_ids": ids}, labels, weights)

    def save(self, model_dir: Path) -> None:
        """Ends training: the model becomes what its bf16 weights say it is."""
        for hook in self._hooks:
            hook.remove()
        self.model.to(torch.bfloat16).save_pretrained(model_dir)
        self.model.float().eval()

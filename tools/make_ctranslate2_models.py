"""Makes small random models as CTranslate2's converter writes them, and what
transformers makes of the weights that they hold.

    python -m tools.make_ctranslate2_models tests/data/families
    python -m tools.make_ctranslate2_models tests/data/families --check

Each directory, ctranslate2_NAME, gets what the converter writes, without a
tokenizer, and `logits.safetensors`, `requests.jsonl` and `decoder_prompts.jsonl`
as tools.make_family_models makes them, in float64. Weights that the converter
quantised or rounded are the same to transformers: a number of an int8 matrix is
its code divided by the scale of its row, rounded to the type of the others.

`--check` converts the models again and fails if a file of the converter or a
reference differs.
"""

import argparse
import copy
import filecmp
import random
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ctranslate2.converters import TransformersConverter
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from transformers.utils import logging

from tools.embedded_model import read_jsonl, write_jsonl
from tools.family_shapes import VOCAB_SIZE, Shape
from tools.make_family_models import (
    DECODER_PROMPTS,
    TOLERANCE,
    Draw,
    Reference,
    Row,
    draw_decoder_prompt,
    draw_request,
    fill,
    make_logits,
    model_class,
)

END, PAD_OF_MARIAN = 2, VOCAB_SIZE - 1
NUM_REQUESTS, NUM_DECODER_PROMPTS = 12, 4
CONVERTED = ["model.bin", "config.json", "shared_vocabulary.json"]


@dataclass(frozen=True)
class Model:
    name: str
    model_type: str
    quantization: str
    config: dict[str, Any]
    # The token that transformers treats as no other, and CTranslate2 does not.
    avoided: int | None = None
    has_own_head: bool = False

    @property
    def shape(self) -> Shape:
        return Shape(
            self.name,
            self.model_type,
            self.config,
            NUM_REQUESTS,
            max_length=40,
            dtype="float32",
            padding=self.avoided,
        )


def _bart(**changes: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB_SIZE,
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 20,
        "max_position_embeddings": 48,
        "is_encoder_decoder": True,
        "bos_token_id": 1,
        "eos_token_id": END,
        "forced_eos_token_id": None,
        "pad_token_id": 0,
        "decoder_start_token_id": END,
    } | changes


def _marian(**changes: Any) -> dict[str, Any]:
    return _bart(
        pad_token_id=PAD_OF_MARIAN,
        decoder_start_token_id=PAD_OF_MARIAN,
        scale_embedding=True,
        activation_function="swish",
    ) | changes


def _t5(**changes: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB_SIZE,
        "d_model": 16,
        "d_kv": 6,
        "d_ff": 20,
        "num_layers": 2,
        "num_decoder_layers": 2,
        "num_heads": 2,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 12,
        "is_encoder_decoder": True,
        "eos_token_id": END,
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
    } | changes


PRE_NORM = {"normalize_before": True, "activation_function": "relu"}

MODELS = [
    Model("marian", "marian", "float32", _marian(), PAD_OF_MARIAN),
    Model("marian_int8", "marian", "int8", _marian(), PAD_OF_MARIAN),
    Model("bart", "bart", "float16", _bart(normalize_before=False)),
    Model(
        "m2m_100",
        "m2m_100",
        "float32",
        _bart(pad_token_id=1, bos_token_id=0, scale_embedding=True),
        avoided=1,
    ),
    Model(
        "mbart",
        "mbart",
        "int8_float16",
        _bart(
            **PRE_NORM,
            scale_embedding=True,
            bos_token_id=4,
            decoder_start_token_id=4,
        ),
    ),
    Model(
        "pegasus",
        "pegasus",
        "int8_bfloat16",
        _bart(
            **PRE_NORM,
            normalize_embedding=False,
            scale_embedding=True,
            decoder_start_token_id=0,
        ),
    ),
    Model("t5", "t5", "float32", _t5()),
    Model(
        "t5_gated",
        "t5",
        "int8",
        _t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
        has_own_head=True,
    ),
    Model(
        "umt5",
        "umt5",
        "bfloat16",
        _t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
        has_own_head=True,
    ),
]


class Tokens:
    """All of a tokenizer that the converter asks for."""

    bos_token, eos_token, unk_token, pad_token = "<s>", "</s>", "<unk>", "<pad>"
    special_tokens_map: dict[str, Any] = {}

    def __init__(self, config: Any):
        self.names = [f"t{i}" for i in range(VOCAB_SIZE)]
        self.names[3] = self.unk_token
        self.names[config.eos_token_id] = self.eos_token
        self.names[config.pad_token_id] = self.pad_token
        bos = getattr(config, "bos_token_id", None)
        if bos is not None and bos != config.pad_token_id:
            self.names[bos] = self.bos_token
        self.unk_token_id = 3

    def get_vocab(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def convert_ids_to_tokens(self, token: int) -> str:
        return self.names[token]


class Converter(TransformersConverter):
    has_own_head = False

    def load_model(self, *args: Any, **options: Any) -> Any:
        model = super().load_model(*args, **options)
        # transformers 5 reads true, whatever config.json says; the converter
        # takes it for a scale of the head's input.
        if self.has_own_head:
            model.config.tie_word_embeddings = False
        return model

    def load_tokenizer(self, *_: Any, **__: Any) -> Tokens:
        config = AutoConfig.from_pretrained(self._model_name_or_path)
        return Tokens(config)


def make_model(model: Model, seed: int) -> torch.nn.Module:
    config = AutoConfig.for_model(model.model_type, **model.config)
    made = model_class(config).from_config(config, dtype=torch.float32)
    if model.has_own_head:
        made.lm_head = torch.nn.Linear(config.d_model, VOCAB_SIZE, False)
        made.config.tie_word_embeddings = False
    fill(made, model.shape, seed)
    if model.model_type == "marian":
        made.get_input_embeddings().weight.data[PAD_OF_MARIAN] = 0
    made.generation_config.eos_token_id = END
    made.eval()
    return made


def convert(model: Model, made: torch.nn.Module, directory: Path) -> None:
    with tempfile.TemporaryDirectory() as original:
        made.save_pretrained(original)
        converter = Converter(original)
        converter.has_own_head = model.has_own_head
        converter.convert(str(directory), quantization=model.quantization, force=True)


def dequantised(weight: torch.Tensor) -> torch.Tensor:
    rows = weight.numpy().copy()
    largest = np.amax(np.absolute(rows), axis=1)
    largest[largest == 0] = 127
    scale = np.float32(127.0) / largest
    codes = np.rint(rows * scale[:, None]).astype(np.float32)
    return torch.from_numpy(codes / scale[:, None])


def as_stored(model: Model, made: torch.nn.Module) -> torch.nn.Module:
    """The model with the weights that the converted file holds, in float64."""
    stored = copy.deepcopy(made)
    is_int8 = model.quantization.startswith("int8")
    others = model.quantization.removeprefix("int8").removeprefix("_") or "float32"
    kept = {"embed_positions", "relative_attention_bias"}
    matrices = {
        id(module.weight)
        for name, module in stored.named_modules()
        if isinstance(module, (torch.nn.Linear, torch.nn.Embedding))
        and name.split(".")[-1] not in kept
    }
    for weight in stored.parameters():
        if is_int8 and id(weight) in matrices:
            weight.data = dequantised(weight.data)
        weight.data = weight.data.to(getattr(torch, others))
    for name, buffer in stored.named_buffers():
        if name.endswith(("final_logits_bias", "embed_positions.weights")):
            buffer.data = buffer.data.to(getattr(torch, others))
    stored = stored.double()
    if model.model_type == "marian":
        # The file has no row for it: it is not generated.
        stored.final_logits_bias[0, PAD_OF_MARIAN] = -torch.inf
    return stored


class StoredReference(Reference):
    def __init__(self, model: torch.nn.Module):
        self.has_encoder = True
        self.end_ids = [END]
        self.model = model


def make_requests(
    model: Model, reference: Reference, seed: int, draw: Draw, num_requests: int
) -> list[Row]:
    rng = random.Random(seed)
    shape = Shape(model.name, model.model_type, model.config, 0, max_length=40)
    rows: list[Row] = []
    while len(rows) < num_requests:
        prompt, params = draw(rng, shape)
        given = params.get("decoder_input_ids", [])[1:]
        seen = [*prompt, *given, params.get("forced_bos_token_id")]
        if model.avoided is not None and model.avoided in seen:
            continue
        hypotheses = reference.hypotheses(prompt, params)
        if any(model.avoided in row["tokens"] for row in hypotheses):
            continue
        if reference.is_stable(prompt, params, hypotheses):
            rows.append(
                {"prompt_tokens": prompt, "params": params, "hypotheses": hypotheses}
            )
    return rows


def write_references(
    model: Model, reference: Reference, seed: int, directory: Path
) -> None:
    tensors = make_logits(model.shape, reference, seed)
    save_file(tensors, directory / "logits.safetensors")
    for name, draw, count in [
        ("requests.jsonl", draw_request, NUM_REQUESTS),
        (DECODER_PROMPTS, draw_decoder_prompt, NUM_DECODER_PROMPTS),
    ]:
        rows = make_requests(model, reference, seed, draw, count)
        write_jsonl(directory / name, rows)
    for path in directory.iterdir():
        path.chmod(0o644)


def check(directory: Path, made: Path, reference: Reference) -> bool:
    _, differing, missing = filecmp.cmpfiles(directory, made, CONVERTED, shallow=False)
    tensors = load_file(directory / "logits.safetensors")
    worst = 0.0
    for name in [name for name in tensors if name.startswith("tokens.")]:
        source = tensors[name.replace("tokens", "source")].tolist()
        expected = tensors[name.replace("tokens", "logits")]
        actual = reference.logits(tensors[name].tolist(), source)
        is_finite = expected.isfinite()
        difference = (actual - expected)[is_finite]
        worst = max(worst, difference.abs().max().item())
    rows = read_jsonl(directory / "requests.jsonl")
    rows += read_jsonl(directory / DECODER_PROMPTS)
    num_same = sum(
        [h["tokens"] for h in row["hypotheses"]]
        == [h["tokens"] for h in reference.hypotheses(row["prompt_tokens"], row["params"])]
        for row in rows
    )
    print(
        f"{directory.name}: other files: {differing + missing}, logits within "
        f"{worst:.1e}, {num_same} of {len(rows)}"
    )
    is_same = not differing and not missing
    return is_same and worst <= TOLERANCE and num_same == len(rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="a directory for one each model")
    parser.add_argument("--only", help="one model's name")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    is_right = True
    for seed, model in enumerate(MODELS, start=100):
        if args.only not in (None, model.name):
            continue
        directory = args.output / f"ctranslate2_{model.name}"
        made = make_model(model, seed)
        reference = StoredReference(as_stored(model, made))
        with tempfile.TemporaryDirectory() as scratch:
            converted = Path(scratch) / "converted"
            convert(model, made, converted)
            if args.check:
                is_right &= check(directory, converted, reference)
                continue
            directory.mkdir(parents=True, exist_ok=True)
            for name in CONVERTED:
                shutil.copyfile(converted / name, directory / name)
        write_references(model, reference, seed, directory)
        size = (directory / "model.bin").stat().st_size
        print(f"{directory.name}: {size} bytes")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())

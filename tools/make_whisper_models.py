"""Makes small random Whisper models, and what transformers makes of them.

    python -m tools.make_whisper_models tests/data/speech

Each directory gets a model as transformers saves it, `logits.safetensors` (some
`features.N`, [frames, bands], and the logits after every token of a sequence for
each) and `requests.jsonl`: the number of the features, parameters and the
hypotheses of `generate`, greedy and beam search, kept as
tools/make_family_models.py keeps them; and `attentions.safetensors`, what the
cross-attention of each head gives the positions for each token. The weights run in float64, and
`generate` is that of all models: Whisper's own loops over windows of audio.
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import (
    AutoConfig,
    GenerationMixin,
    LogitsProcessorList,
    WhisperForConditionalGeneration,
)
from transformers.utils import logging

from tools.embedded_model import up_to_end, write_jsonl
from tools.family_shapes import EOS, VOCAB_SIZE, Shape
from tools.make_family_models import (
    DTYPE,
    NUM_NOISY_RUNS,
    Noise,
    draw_processors,
    fill,
)

Row = dict[str, Any]

START = 3
NUM_FEATURES = 4
NUM_REQUESTS = 20


def whisper(**changes: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB_SIZE,
        "num_mel_bins": 8,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 48,
        "max_source_positions": 20,
        "max_target_positions": 40,
        "bos_token_id": 1,
        "eos_token_id": EOS,
        "pad_token_id": 0,
        "decoder_start_token_id": START,
        "suppress_tokens": None,
        "begin_suppress_tokens": None,
    } | changes


SHAPES = [
    Shape("whisper", "whisper", whisper(), NUM_REQUESTS),
    # As distil-whisper has fewer layers; sizes that fill no vector.
    Shape(
        "whisper_odd",
        "whisper",
        whisper(
            num_mel_bins=5,
            d_model=24,
            encoder_attention_heads=3,
            decoder_attention_heads=3,
            decoder_layers=1,
            max_source_positions=33,
            activation_function="relu",
        ),
        NUM_REQUESTS,
        dtype="float16",
    ),
]


class Reference:
    def __init__(self, directory: Path):
        self.model = WhisperForConditionalGeneration.from_pretrained(
            directory, dtype=DTYPE, attn_implementation="eager"
        )
        self.model.eval()

    def logits(self, features: torch.Tensor, tokens: list[int]) -> torch.Tensor:
        with torch.no_grad():
            return (
                self.model(
                    input_features=features.T[None].to(DTYPE),
                    decoder_input_ids=torch.tensor([tokens]),
                )
                .logits[0]
                .float()
            )

    def attentions(self, features: torch.Tensor, tokens: list[int]) -> torch.Tensor:
        """[layers, heads, tokens, positions]"""
        with torch.no_grad():
            outputs = self.model(
                input_features=features.T[None].to(DTYPE),
                decoder_input_ids=torch.tensor([tokens]),
                output_attentions=True,
            )
        return torch.cat(outputs.cross_attentions).float()

    def hypotheses(
        self, features: torch.Tensor, params: Row, noise: Noise | None = None
    ) -> list[Row]:
        options = dict(params)
        given = options.pop("decoder_input_ids", [])
        if given[:1] != [START]:
            given = [START, *given]
        out = GenerationMixin.generate(
            self.model,
            input_features=features.T[None].to(DTYPE),
            decoder_input_ids=torch.tensor([given]),
            do_sample=False,
            num_return_sequences=params["num_beams"],
            return_dict_in_generate=True,
            output_scores=True,
            logits_processor=LogitsProcessorList([noise] if noise else []),
            **options,
        )
        sequences = out.sequences.tolist()
        tokens = [up_to_end(sequence[len(given) :], EOS) for sequence in sequences]
        scores = getattr(out, "sequences_scores", None)
        scores = [None] * len(tokens) if scores is None else scores.tolist()
        return [
            {"tokens": t, "score": s if s is None else round(s, 7)}
            for t, s in zip(tokens, scores)
        ]

    def is_stable(
        self, features: torch.Tensor, params: Row, expected: list[Row]
    ) -> bool:
        tokens = [hypothesis["tokens"] for hypothesis in expected]
        return all(
            [h["tokens"] for h in self.hypotheses(features, params, Noise(seed))]
            == tokens
            for seed in range(NUM_NOISY_RUNS)
        )


def draw_params(rng: random.Random) -> Row:
    params: Row = {
        "num_beams": rng.choice([1, 2, 3, 4, 5]),
        "max_new_tokens": rng.choice([4, 10, 16]),
    }
    if params["num_beams"] > 1:
        params["length_penalty"] = rng.choice([0.0, 0.6, 1.0, 2.0])
        params["early_stopping"] = rng.choice([False, True, "never"])
    params |= draw_processors(rng)
    if rng.random() < 0.4:
        # Whisper's outputs begin after a language, a task and more. It forces
        # the second token of a decoder, which is of these.
        params.pop("forced_bos_token_id", None)
        given = [rng.randrange(10, VOCAB_SIZE) for _ in range(rng.randint(1, 12))]
        params["decoder_input_ids"] = given
    return params


def make_model(shape: Shape, seed: int, directory: Path) -> None:
    config = AutoConfig.for_model(shape.model_type, **shape.config)
    dtype = getattr(torch, shape.dtype)
    model = WhisperForConditionalGeneration(config).to(dtype)
    fill(model, shape, seed)
    directory.mkdir(parents=True, exist_ok=True)
    model.generation_config.eos_token_id = EOS
    model.generation_config.pad_token_id = 0
    model.generation_config.decoder_start_token_id = START
    model.save_pretrained(directory)
    for path in directory.glob("*.json"):
        config_text = json.loads(path.read_text())
        config_text.pop("transformers_version", None)
        path.write_text(json.dumps(config_text, indent=1, sort_keys=True) + "\n")


def save_attentions(
    reference: Reference, tensors: dict[str, torch.Tensor], directory: Path
) -> None:
    attentions = {
        f"attentions.{i}": reference.attentions(
            tensors[f"features.{i}"], tensors[f"tokens.{i}"].tolist()
        ).contiguous()
        for i in (1, 2)
    }
    save_file(attentions, directory / "attentions.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="a directory for one each model")
    output = parser.parse_args().output
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    for seed, shape in enumerate(SHAPES):
        directory = output / shape.name
        make_model(shape, seed, directory)
        reference = Reference(directory)
        rng = random.Random(seed)
        generator = torch.Generator().manual_seed(seed)
        size = 2 * shape.config["max_source_positions"], shape.config["num_mel_bins"]
        features = [
            torch.randn(size, generator=generator) for _ in range(NUM_FEATURES)
        ]
        tensors = {}
        for i, values in enumerate(features):
            tokens = [rng.randrange(VOCAB_SIZE) for _ in range([1, 7, 17, 40][i])]
            tensors[f"features.{i}"] = values
            tensors[f"tokens.{i}"] = torch.tensor(tokens, dtype=torch.int32)
            tensors[f"logits.{i}"] = reference.logits(values, tokens)
        save_file(tensors, directory / "logits.safetensors")
        save_attentions(reference, tensors, directory)
        rows: list[Row] = []
        while len(rows) < shape.num_requests:
            i = rng.randrange(NUM_FEATURES)
            params = draw_params(rng)
            hypotheses = reference.hypotheses(features[i], params)
            if reference.is_stable(features[i], params, hypotheses):
                rows.append({"features": i, "params": params,
                             "hypotheses": hypotheses})
        write_jsonl(directory / "requests.jsonl", rows)
        for path in directory.iterdir():
            path.chmod(0o644)


if __name__ == "__main__":
    main()

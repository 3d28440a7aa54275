"""Makes small random models of each family, and what transformers makes of them.

    python -m tools.make_family_models tests/data/families
    python -m tools.make_family_models tests/data/families --check
    python -m tools.make_family_models tests/data/families --decoder-prompts

Each directory gets a model as transformers saves it, `logits.safetensors` (the
logits after every token of a few sequences) and `requests.jsonl` (prompts,
parameters and the hypotheses of `generate`, greedy and beam search). Those of
encoder-decoders get `decoder_prompts.jsonl` as well, the same of requests that
say what the decoder begins with (`decoder_input_ids`), with the start token in
front and without; `--decoder-prompts` makes this file alone, of the models that
are there. The weights run in float64. `--check` makes the references of the
models that are there anew and fails if they differ from the files.

A request is kept only if noise on the logits of a thousandth changes none of its
hypotheses: what is compared token for token must not hang on a rounding.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    LogitsProcessor,
    LogitsProcessorList,
)
from transformers.utils import logging

from tools.embedded_model import read_jsonl, up_to_end, write_jsonl
from tools.family_shapes import EOS, SHAPES, VOCAB_SIZE, Shape

Row = dict[str, Any]

NOISE = 1e-3
NUM_NOISY_RUNS = 3
SEQUENCE_LENGTHS = [1, 17, 40]
DECODER_PROMPTS = "decoder_prompts.jsonl"
NUM_DECODER_PROMPTS = 5
TOLERANCE = 1e-5
# The rotary angles are float32 in any case; nothing else is.
DTYPE = torch.float64
EMBEDDINGS = ["embed_tokens", "embed_positions", "shared", "wte", "wpe"]


def fill(model: torch.nn.Module, shape: Shape, seed: int) -> None:
    """Random weights under which attention, norms and biases all matter."""
    generator = torch.Generator().manual_seed(seed)
    is_gemma = shape.model_type.startswith("gemma")
    for name, weight in sorted(model.named_parameters()):
        values = torch.randn(weight.shape, generator=generator, dtype=DTYPE)
        if name.endswith(".bias"):
            values *= 0.4
        elif weight.dim() == 1:
            values = values * 0.4 + (0.0 if is_gemma else 1.0)
        elif any(part in name for part in EMBEDDINGS):
            values *= 0.5
        elif "relative_attention_bias" in name:
            values *= 1.0
        elif "lm_head" in name:
            values *= 3.0 / weight.shape[1] ** 0.5
        else:
            is_conv = shape.model_type == "gpt2"
            values *= 1.4 / weight.shape[0 if is_conv else 1] ** 0.5
            # T5's scores are not divided: its queries are small from the start.
            if name.endswith("Attention.q.weight"):
                values /= shape.config["d_kv"] ** 0.5
        # Sinusoidal positions are frozen.
        if weight.requires_grad:
            weight.data.copy_(values.to(getattr(torch, shape.dtype)))
    if hasattr(model, "final_logits_bias"):
        bias = torch.randn(model.final_logits_bias.shape, generator=generator)
        model.final_logits_bias.copy_(bias)


def model_class(config: Any) -> Any:
    return AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM


def make_model(shape: Shape, seed: int, directory: Path) -> None:
    config = AutoConfig.for_model(shape.model_type, **shape.config)
    dtype = getattr(torch, shape.dtype)
    model = model_class(config).from_config(config, dtype=dtype)
    if shape.has_own_head:
        model.lm_head = torch.nn.Linear(config.d_model, VOCAB_SIZE, False, dtype=dtype)
        model.config.tie_word_embeddings = False
    fill(model, shape, seed)
    directory.mkdir(parents=True, exist_ok=True)
    model.generation_config.eos_token_id = EOS
    model.generation_config.pad_token_id = 0
    model.save_pretrained(directory)
    if shape.has_no_base_prefix:
        path = directory / "model.safetensors"
        prefix = model.base_model_prefix + "."
        tensors = {
            name.removeprefix(prefix): tensor
            for name, tensor in load_file(path).items()
        }
        save_file(tensors, path, metadata={"format": "pt"})
    for path in directory.glob("*.json"):
        config_text = json.loads(path.read_text())
        config_text.pop("transformers_version", None)
        path.write_text(json.dumps(config_text, indent=1, sort_keys=True) + "\n")


def decoder_start(config: dict[str, Any]) -> int:
    """Its token, as `generate` finds it."""
    start = config["decoder_start_token_id"]
    return config["bos_token_id"] if start is None else start


class Noise(LogitsProcessor):
    def __init__(self, seed: int):
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        unit = torch.rand(scores.shape, generator=self.generator, dtype=scores.dtype)
        return scores + NOISE * (2 * unit - 1)


class Reference:
    def __init__(self, directory: Path):
        config = AutoConfig.from_pretrained(directory)
        self.end_ids = EOS
        self.has_encoder = config.is_encoder_decoder
        self.model = model_class(config).from_pretrained(
            directory, dtype=DTYPE, attn_implementation="eager"
        )
        self.model.eval()

    def logits(self, tokens: list[int], source: list[int] | None) -> torch.Tensor:
        with torch.no_grad():
            if source is None:
                return self.model(torch.tensor([tokens])).logits[0].float()
            return (
                self.model(
                    input_ids=torch.tensor([source]),
                    decoder_input_ids=torch.tensor([tokens]),
                )
                .logits[0]
                .float()
            )

    def num_before(self, prompt: list[int], params: Row) -> int:
        """Tokens of a sequence that are not generated."""
        if not self.has_encoder:
            return len(prompt)
        # A decoder with an encoder begins with decoder_start_token_id.
        start = decoder_start(self.model.config.to_dict())
        given = params.get("decoder_input_ids", [])
        return len(given) + (given[:1] != [start])

    def hypotheses(
        self, prompt: list[int], params: Row, noise: Noise | None = None
    ) -> list[Row]:
        options = dict(params)
        if "decoder_input_ids" in params:
            options["decoder_input_ids"] = torch.tensor([params["decoder_input_ids"]])
        out = self.model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            num_return_sequences=params["num_beams"],
            return_dict_in_generate=True,
            output_scores=True,
            logits_processor=LogitsProcessorList([noise] if noise else []),
            **options,
        )
        sequences = out.sequences.tolist()
        num_before = self.num_before(prompt, params)
        tokens = [up_to_end(sequence[num_before:], self.end_ids) for sequence in sequences]
        scores = getattr(out, "sequences_scores", None)
        scores = [None] * len(tokens) if scores is None else scores.tolist()
        return [
            {"tokens": t, "score": s if s is None else round(s, 7)}
            for t, s in zip(tokens, scores)
        ]

    def is_stable(self, prompt: list[int], params: Row, expected: list[Row]) -> bool:
        tokens = [hypothesis["tokens"] for hypothesis in expected]
        for seed in range(NUM_NOISY_RUNS):
            noisy = self.hypotheses(prompt, params, Noise(seed))
            if [hypothesis["tokens"] for hypothesis in noisy] != tokens:
                return False
        return True


def draw_processors(rng: random.Random) -> Row:
    """Those that encoder-decoders are published with, or that see the decoder's
    first token, each with some requests."""
    choices = [
        {"forced_bos_token_id": rng.randrange(10, VOCAB_SIZE)},
        {"forced_eos_token_id": rng.choice([2, 5])},
        {"bad_words_ids": [[rng.randrange(10, VOCAB_SIZE)], [11, 12]]},
        {"no_repeat_ngram_size": rng.choice([1, 2])},
        {"repetition_penalty": 1.3},
        {"min_new_tokens": 3},
    ]
    return {k: v for choice in choices if rng.random() < 0.3 for k, v in choice.items()}


def draw_token(rng: random.Random, shape: Shape, low: int = 0) -> int:
    while (token := rng.randrange(low, VOCAB_SIZE)) == shape.padding:
        pass
    return token


def draw_request(rng: random.Random, shape: Shape) -> tuple[list[int], Row]:
    params = {
        "num_beams": rng.choice([1, 2, 3, 4, 5]),
        "max_new_tokens": rng.choice([4, 10, 16]),
    }
    if params["num_beams"] > 1:
        params["length_penalty"] = rng.choice([0.0, 0.6, 1.0, 2.0])
        params["early_stopping"] = rng.choice([False, True, "never"])
    if shape.has_encoder:
        params |= draw_processors(rng)
    # Few random models write it, and the position of what follows differs.
    if shape.padding is not None and rng.random() < 0.25:
        params["forced_bos_token_id"] = shape.padding
    longest = shape.max_length - params["max_new_tokens"]
    length = rng.randint(1, min(30, longest))
    return [draw_token(rng, shape, 1) for _ in range(length)], params


def draw_decoder_prompt(rng: random.Random, shape: Shape) -> tuple[list[int], Row]:
    """A request whose output goes on from some tokens."""
    prompt, params = draw_request(rng, shape)
    # It forces the second token of a decoder, which is of the prompt.
    params.pop("forced_bos_token_id", None)
    given = [rng.randrange(10, VOCAB_SIZE) for _ in range(rng.randint(1, 12))]
    if rng.random() < 0.4:
        given.insert(0, decoder_start(shape.config))
    return prompt, params | {"decoder_input_ids": given}


Draw = Callable[[random.Random, Shape], tuple[list[int], Row]]


def make_requests(
    shape: Shape, reference: Reference, seed: int, draw: Draw, num_requests: int
) -> list[Row]:
    rng = random.Random(seed)
    rows: list[Row] = []
    num_drawn = 0
    while len(rows) < num_requests:
        prompt, params = draw(rng, shape)
        num_drawn += 1
        hypotheses = reference.hypotheses(prompt, params)
        if reference.is_stable(prompt, params, hypotheses):
            rows.append(
                {"prompt_tokens": prompt, "params": params, "hypotheses": hypotheses}
            )
    print(f"{shape.name}: {len(rows)} of {num_drawn} requests are stable")
    return rows


def make_logits(shape: Shape, reference: Reference, seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    tensors = {}
    for i, length in enumerate(SEQUENCE_LENGTHS):
        tokens = [draw_token(rng, shape) for _ in range(length)]
        tensors[f"tokens.{i}"] = torch.tensor(tokens, dtype=torch.int32)
        source = None
        if reference.has_encoder:
            source = [draw_token(rng, shape) for _ in range(3 + length // 2)]
            tensors[f"source.{i}"] = torch.tensor(source, dtype=torch.int32)
        tensors[f"logits.{i}"] = reference.logits(tokens, source)
    return tensors


def check(directory: Path, reference: Reference) -> bool:
    """Whether the references in the directory are what transformers says."""
    tensors = load_file(directory / "logits.safetensors")
    worst = 0.0
    for i in range(len(SEQUENCE_LENGTHS)):
        source = tensors[f"source.{i}"].tolist() if reference.has_encoder else None
        logits = reference.logits(tensors[f"tokens.{i}"].tolist(), source)
        worst = max(worst, (logits - tensors[f"logits.{i}"]).abs().max().item())
    rows = read_jsonl(directory / "requests.jsonl")
    if reference.has_encoder:
        rows += read_jsonl(directory / DECODER_PROMPTS)
    num_same = 0
    for row in rows:
        actual = reference.hypotheses(row["prompt_tokens"], row["params"])
        num_same += all(
            e["tokens"] == a["tokens"]
            and abs((e["score"] or 0) - (a["score"] or 0)) <= TOLERANCE
            for e, a in zip(row["hypotheses"], actual, strict=True)
        )
    print(f"{directory.name}: logits within {worst:.1e}, {num_same} of {len(rows)}")
    return worst <= TOLERANCE and num_same == len(rows)


def write_decoder_prompts(
    shape: Shape, reference: Reference, seed: int, directory: Path
) -> None:
    rows = make_requests(
        shape, reference, seed, draw_decoder_prompt, NUM_DECODER_PROMPTS
    )
    write_jsonl(directory / DECODER_PROMPTS, rows)
    (directory / DECODER_PROMPTS).chmod(0o644)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="a directory for one each model")
    parser.add_argument("--only", help="one model's name")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--decoder-prompts", action="store_true")
    args = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    is_right = True
    for seed, shape in enumerate(SHAPES):
        if args.only not in (None, shape.name):
            continue
        directory = args.output / shape.name
        if args.check:
            is_right &= check(directory, Reference(directory))
            continue
        if args.decoder_prompts:
            if shape.has_encoder:
                write_decoder_prompts(shape, Reference(directory), seed, directory)
            continue
        make_model(shape, seed, directory)
        reference = Reference(directory)
        save_file(make_logits(shape, reference, seed), directory / "logits.safetensors")
        rows = make_requests(shape, reference, seed, draw_request, shape.num_requests)
        write_jsonl(directory / "requests.jsonl", rows)
        if shape.has_encoder:
            write_decoder_prompts(shape, reference, seed, directory)
        for path in directory.iterdir():
            path.chmod(0o644)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())

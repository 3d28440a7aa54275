"""Makes references for searches with options that beam_search.jsonl lacks.

    python -m tools.make_search_references diverse --output diverse.jsonl
    python -m tools.make_search_references patience --output patience.jsonl
    python -m tools.make_search_references processors --output processors.jsonl

`diverse` runs groups of beams by `generate` of transformers 4.56.2, the last
version with `_group_beam_search` in it (huggingface_hub 0.35.3, tokenizers
0.22.1), in an environment of its own: weights in float64, one prompt at a time.
`patience` runs CTranslate2's Generator in float32; the version is that of
requirements.txt. `processors` runs transformers 5 as make_references.py does, with
`renormalize_logits`, `sequence_bias`, `begin_suppress_tokens` and
`exponential_decay_length_penalty`, alone and together. Requests are drawn from sentences and a seed, as in
reference_requests.py.

What the libraries cannot show is left out: transformers 4 writes the first of
several EOS ids whichever came, and CTranslate2 ends otherwise where
length_penalty is 0.
"""

import argparse
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM
from transformers.utils import logging

from tools import embedded_model
from tools.embedded_model import EOS, Tokenizer, read_jsonl, up_to_end, write_jsonl

Row = dict[str, Any]
Search = Callable[[list[int], Row], list[Row]]

BEAMS_AND_GROUPS = [(2, 2), (4, 2), (4, 4), (6, 2), (6, 3), (8, 2), (8, 4)]


def diverse_params(rng: random.Random) -> Row:
    num_beams, num_groups = rng.choice(BEAMS_AND_GROUPS)
    params = {
        "num_beams": num_beams,
        "num_beam_groups": num_groups,
        "diversity_penalty": rng.choice([0.1, 0.5, 1.0, 2.5]),
        "length_penalty": rng.choice([0.0, 0.6, 1.0, 1.0, 2.0]),
        "early_stopping": rng.choice([False, False, True, "never"]),
        "max_new_tokens": rng.choice([5, 16, 40, 40]),
    }
    options: list[Row] = [
        {"no_repeat_ngram_size": rng.choice([1, 2])},
        {"min_new_tokens": rng.choice([4, 8])},
        {"suppress_tokens": [262]},
        {"bad_words_ids": [[262, EOS]]},
    ]
    return params | (rng.choice(options) if rng.random() < 0.4 else {})


def patience_params(rng: random.Random) -> Row:
    return {
        "num_beams": rng.choice([2, 3, 4, 5, 8]),
        "patience": rng.choice([0.5, 1.0, 1.5, 2.0, 3.0]),
        "length_penalty": rng.choice([0.6, 1.0, 1.0, 2.0]),
        "early_stopping": True,
        "max_new_tokens": rng.choice([5, 16, 40, 40]),
    }


def sequence_bias(rng: random.Random) -> list[Any]:
    def tokens(count: int) -> list[int]:
        return [rng.choice([EOS, 262, 264, 267, 270, 280, 300]) for _ in range(count)]

    biases = {tuple(tokens(rng.choice([1, 1, 2, 3]))): 0.0 for _ in range(12)}
    return [[list(key), rng.choice([-4.5, -1.0, 0.5, 2.5])] for key in biases]


def processors_params(rng: random.Random) -> Row:
    params = {
        "num_beams": rng.choice([2, 3, 4, 5, 8]),
        "length_penalty": rng.choice([0.0, 0.6, 1.0, 1.0, 2.0]),
        "early_stopping": rng.choice([False, False, True, "never"]),
        "max_new_tokens": rng.choice([5, 16, 40]),
    }
    options: list[Row] = [
        {"renormalize_logits": True, "suppress_tokens": [262, 264, 267]},
        {"renormalize_logits": True, "repetition_penalty": rng.choice([0.8, 1.3])},
        {"renormalize_logits": True, "no_repeat_ngram_size": rng.choice([1, 2])},
        {"sequence_bias": sequence_bias(rng)},
        {"sequence_bias": sequence_bias(rng), "renormalize_logits": True},
        {"begin_suppress_tokens": rng.sample(range(256, 400), 60)},
        {
            "exponential_decay_length_penalty": [
                rng.choice([0, 1, 3, 6]),
                rng.choice([0.7, 1.05, 1.5]),
            ]
        },
    ]
    for option in rng.sample(options, k=rng.choice([1, 1, 2, 3])):
        params |= option
    return params


def transformers5_search(model_dir: Path, _: str) -> Search:
    # Here, as the others need not have its libraries.
    from tools.make_references import Reference

    reference = Reference(model_dir)

    def search(prompt: list[int], params: Row) -> list[Row]:
        hypotheses = reference.hypotheses(prompt, params)
        return [{"tokens": h["tokens"], "score": h["score"]} for h in hypotheses]

    return search


def transformers_search(model_dir: Path, _: str) -> Search:
    model = LlamaForCausalLM.from_pretrained(model_dir, torch_dtype=torch.float64)
    model.eval()
    # `generate` scores in float32, and groups want no other logits.
    model.lm_head.register_forward_hook(lambda _, __, logits: logits.float())

    def search(prompt: list[int], params: Row) -> list[Row]:
        out = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            num_return_sequences=params["num_beams"],
            return_dict_in_generate=True,
            output_scores=True,
            **params,
        )
        pairs = zip(out.sequences.tolist(), out.sequences_scores.tolist())
        return [
            {"tokens": up_to_end(tokens[len(prompt) :]), "score": score}
            for tokens, score in pairs
        ]

    return search


def ctranslate2_search(model_dir: Path, work: str) -> Search:
    # Here, as transformers 4 and the converter need not live together.
    import ctranslate2

    from tools.peers.ctranslate2_generate import convert

    convert(model_dir, work)
    generator = ctranslate2.Generator(work, device="cpu", compute_type="float32")
    pieces = Tokenizer(model_dir).pieces

    def search(prompt: list[int], params: Row) -> list[Row]:
        num_beams, patience = params["num_beams"], params["patience"]
        result = generator.generate_batch(
            [pieces.id_to_piece(prompt)],
            beam_size=num_beams,
            patience=patience,
            num_hypotheses=min(num_beams, max(1, int(num_beams * patience + 0.5))),
            length_penalty=params["length_penalty"],
            max_length=params["max_new_tokens"],
            include_prompt_in_result=False,
            end_token="</s>",
            return_end_token=True,
            return_scores=True,
        )[0]
        pairs = zip(result.sequences_ids, result.scores)
        return [{"tokens": tokens, "score": score} for tokens, score in pairs]

    return search


KINDS = {
    "diverse": (transformers_search, diverse_params),
    "patience": (ctranslate2_search, patience_params),
    "processors": (transformers5_search, processors_params),
}


def make(args: argparse.Namespace, work: str) -> list[Row]:
    start, draw = KINDS[args.kind]
    search = start(args.model, work)
    tokenizer = Tokenizer(args.model)
    rng = random.Random(args.seed)
    sentences = read_jsonl(args.sentences)
    rows = []
    for sentence in rng.sample(sentences, k=args.count):
        prompt = tokenizer.prompt(sentence["text"])
        params = draw(rng)
        rows.append(
            {
                "prompt_tokens": prompt,
                "params": params,
                "hypotheses": search(prompt, params),
            }
        )
    return rows


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("kind", choices=list(KINDS))
    add("--model", type=Path, default=embedded_model.EN_FR)
    add("--sentences", type=Path, default=embedded_model.DEV_SENTENCES)
    add("--count", type=int, default=80)
    add("--seed", type=int, default=1)
    add("--output", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as work:
        write_jsonl(args.output, make(args, work))


if __name__ == "__main__":
    main()

"""Makes the reference outputs that the engine's tests compare against.

    pip install -r tools/requirements.txt
    python -m tools.make_references beams --requests tests/data/beam_search.jsonl \\
        --output beams.jsonl --check tests/data/beam_search.jsonl
    python -m tools.make_references logprobs --count 24 --seed 1 --output new.jsonl

`beams` runs transformers' `generate`, one prompt at a time and so without
padding; `logprobs` runs the forward pass over whole sequences and keeps the
best next tokens after every position. The weights run in float64; `generate`
scores in float32, the log-probabilities are float64. Requests come from an
existing file, or anew from sentences and a seed. `--check` says how many lines
agree with an existing file and fails if any does not.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM
from transformers.utils import logging

from tools import embedded_model, reference_check, reference_requests
from tools.embedded_model import EOS, Tokenizer, read_jsonl, up_to_end, write_jsonl

Row = dict[str, Any]

NUM_TOP_TOKENS = 12


class Reference:
    """The model in float64, as transformers runs it."""

    def __init__(self, model_dir: Path):
        self.tokenizer = Tokenizer(model_dir)
        self.model = LlamaForCausalLM.from_pretrained(model_dir, dtype=torch.float64)
        self.model.eval()

    def hypotheses(self, prompt: list[int], params: Row) -> list[Row]:
        out = self.model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            num_return_sequences=params["num_beams"],
            return_dict_in_generate=True,
            output_scores=True,
            **params,
        )
        ends = params.get("eos_token_id", [EOS])
        tokens = [
            up_to_end(sequence[len(prompt) :], ends)
            for sequence in out.sequences.tolist()
        ]
        # Greedy search has no sequences_scores.
        scores = getattr(out, "sequences_scores", None)
        scores = [None] * len(tokens) if scores is None else scores.tolist()
        return [
            {"tokens": t, "score": s, "text": self.tokenizer.decode(t)}
            for t, s in zip(tokens, scores)
        ]

    def greedy(self, prompt: list[int]) -> list[int]:
        params = {"num_beams": 1, "max_new_tokens": 40}
        return self.hypotheses(prompt, params)[0]["tokens"]

    def beams(self, request: Row) -> Row:
        """The request with the hypotheses the reference returns, best first."""
        hypotheses = self.hypotheses(request["prompt_tokens"], request["params"])
        kept = {k: request[k] for k in ("prompt_text", "prompt_tokens", "params")}
        return kept | {"hypotheses": hypotheses}

    def log_probs(self, request: Row) -> Row:
        """The best next tokens after every position of the request's tokens."""
        with torch.no_grad():
            logits = self.model(torch.tensor([request["tokens"]])).logits[0]
        top = logits.log_softmax(-1).topk(NUM_TOP_TOKENS, dim=-1)
        return {
            "tokens": request["tokens"],
            "top_tokens": top.indices.tolist(),
            "top_logprobs": [[round(x, 7) for x in r] for r in top.values.tolist()],
        }


def new_requests(args: argparse.Namespace, reference: Reference) -> list[Row]:
    sentences = read_jsonl(args.sentences)
    tokenizer = reference.tokenizer
    if args.kind == "logprobs":
        return reference_requests.make_sequences(
            sentences, tokenizer, args.count, args.seed
        )
    return reference_requests.make_requests(
        sentences, tokenizer, reference.greedy, args.count, args.seed
    )


def check(
    expected: list[Row], actual: list[Row], match: Callable[[Row, Row], bool]
) -> bool:
    """Reports how many lines match; whether all do."""
    wrong = [i for i, (e, a) in enumerate(zip(expected, actual)) if not match(e, a)]
    print(f"{min(len(expected), len(actual)) - len(wrong)} of {len(expected)} match")
    if wrong:
        print("differing lines, from 0:", *wrong)
    if len(expected) != len(actual):
        print(f"{len(actual)} lines were made, {len(expected)} expected")
    return not wrong and len(expected) == len(actual)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("kind", choices=["beams", "logprobs"])
    add("--model", type=Path, default=embedded_model.EN_FR)
    add("--requests", type=Path, help="take the requests of this file")
    add("--sentences", type=Path, default=embedded_model.DEV_SENTENCES)
    add("--count", type=int, default=300, help="requests to make anew")
    add("--seed", type=int, default=1, help="what makes new requests reproducible")
    add("--output", type=Path, help="file to write")
    add("--check", type=Path, help="existing file to compare with")
    return parser.parse_args()


def main() -> int:
    args = parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    reference = Reference(args.model)
    requests = (
        read_jsonl(args.requests) if args.requests else new_requests(args, reference)
    )
    run = reference.beams if args.kind == "beams" else reference.log_probs
    rows = [run(request) for request in requests]
    if args.output:
        write_jsonl(args.output, rows)
    if not args.check:
        return 0
    same = {
        "beams": reference_check.beams_match,
        "logprobs": reference_check.log_probs_match,
    }[args.kind]
    return 0 if check(read_jsonl(args.check), rows, same) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Beam search by transformers `generate`, timed: the reference as a peer.

    python -m tools.peers.transformers_generate --output outputs.jsonl

float32 on the CPU, or what `--device` and `--dtype` say. One prompt at a time,
as someone without padding or batching would call it; `--batch N` runs N prompts
of similar length together, padded on the left. Only the calls of `generate` are
timed.
"""

import argparse
import time
from collections.abc import Iterator

import torch
from transformers import LlamaForCausalLM
from transformers.utils import logging

from tools.embedded_model import PAD, up_to_end
from tools.peers import common
from tools.peers.common import Output, Timing


def batches(prompts: list[list[int]], size: int) -> Iterator[list[int]]:
    """Indices of prompts, `size` at a time, those of similar length together."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def pad_left(prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask, both [num_prompts, longest]."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[PAD] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    return ids, mask


def generate(model: LlamaForCausalLM, prompts: list[list[int]]) -> list[Output]:
    ids, mask = (tensor.to(model.device) for tensor in pad_left(prompts))
    out = model.generate(
        ids,
        attention_mask=mask,
        num_beams=common.NUM_BEAMS,
        max_new_tokens=common.MAX_NEW_TOKENS,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    tokens = out.sequences[:, ids.shape[1] :].tolist()
    scores = out.sequences_scores.tolist()
    return [Output(i, up_to_end(t), s) for i, (t, s) in enumerate(zip(tokens, scores))]


def run(
    model: LlamaForCausalLM, prompts: list[list[int]], size: int
) -> tuple[list[Output], float]:
    """The outputs in the order of the prompts, and the seconds they took."""
    outputs: dict[int, Output] = {}
    start = time.perf_counter()
    for indices in batches(prompts, size):
        for output in generate(model, [prompts[i] for i in indices]):
            idx = indices[output.id]
            outputs[idx] = Output(idx, output.tokens, output.score)
    seconds = time.perf_counter() - start
    return [outputs[i] for i in range(len(prompts))], seconds


def parse_args() -> argparse.Namespace:
    parser = common.peer_parser(__doc__)
    parser.add_argument("--batch", type=int, default=1, help="prompts run together")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--dtype", default="float32", help="float32 or bfloat16")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(args.threads)
    dtype = getattr(torch, args.dtype)
    model = LlamaForCausalLM.from_pretrained(args.model, dtype=dtype).eval()
    model.to(args.device)
    prompts = common.read_prompts(args)
    run(model, prompts[: 4 * args.batch], args.batch)  # warms up
    seconds = []
    for _ in range(args.repeats):
        outputs, taken = run(model, prompts, args.batch)
        seconds.append(taken)
    num_tokens = sum(len(output.tokens) for output in outputs)
    where = {"threads": args.threads} if args.device == "cpu" else {"dtype": args.dtype}
    settings = {"batch": args.batch, **where}
    common.report(args, outputs, Timing(seconds, num_tokens, settings))


if __name__ == "__main__":
    main()

"""Beam search by CTranslate2's `Generator.generate_batch`, timed.

    python -m tools.peers.ctranslate2_generate --output outputs.jsonl

Converts the model, then gives all sentences to one call, float32. The number
of workers, their threads and the batch size are tried out, and the fastest
setting is the one reported: `--inter-threads` and `--max-batch-size` name one
instead. Only the calls of `generate_batch` are timed.

It ends a search as soon as as many hypotheses are finished as there are beams,
which is `early_stopping=True` elsewhere: less work than the default of
transformers, and sometimes a shorter best hypothesis with a lower score.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import ctranslate2
import torch
from ctranslate2.converters.transformers import LlamaLoader
from transformers import LlamaForCausalLM
from transformers.utils import logging

from tools.embedded_model import Tokenizer
from tools.peers import common
from tools.peers.common import Output, Timing

BATCH_SIZES = (16, 32, 64, 128, 256)


class LoaderVocabulary:
    """What the converter asks of a Hugging Face tokenizer, from SentencePiece."""

    bos_token = "<s>"
    eos_token = "</s>"
    unk_token = "<unk>"

    def __init__(self, tokenizer: Tokenizer):
        self._pieces = tokenizer.pieces

    def get_vocab(self) -> dict[str, int]:
        ids = range(self._pieces.vocab_size())
        return {self._pieces.id_to_piece(i): i for i in ids}


def convert(model_dir: Path, output_dir: str) -> None:
    model = LlamaForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    with torch.no_grad():
        spec = LlamaLoader()(model, LoaderVocabulary(Tokenizer(model_dir)))
    spec.validate()
    spec.optimize(quantization="float32")
    spec.save(output_dir)


@dataclass(frozen=True)
class Setting:
    inter_threads: int  # workers, each with a batch of its own
    intra_threads: int  # threads a worker
    max_batch_size: int  # sentences


def settings(args: argparse.Namespace) -> list[Setting]:
    """The settings to try: all that share `--threads` evenly among workers."""
    even = [n for n in range(1, args.threads + 1) if args.threads % n == 0]
    inters = [args.inter_threads] if args.inter_threads else even
    sizes = [args.max_batch_size] if args.max_batch_size else BATCH_SIZES
    return [
        Setting(inter, args.threads // inter, size)
        for inter, size in itertools.product(inters, sizes)
    ]


class Peer:
    """The converted model under one setting."""

    def __init__(self, model_dir: str, tokenizer: Tokenizer, setting: Setting):
        self._pieces = tokenizer.pieces
        self._max_batch_size = setting.max_batch_size
        self._generator = ctranslate2.Generator(
            model_dir,
            device="cpu",
            compute_type="float32",
            inter_threads=setting.inter_threads,
            intra_threads=setting.intra_threads,
        )

    def _call(self, prompts: list[list[str]]) -> list:
        return self._generator.generate_batch(
            prompts,
            max_batch_size=self._max_batch_size,
            beam_size=common.NUM_BEAMS,
            length_penalty=1,
            max_length=common.MAX_NEW_TOKENS,
            include_prompt_in_result=False,
            end_token="</s>",
            return_end_token=True,
            return_scores=True,
        )

    def run(self, prompts: list[list[int]]) -> tuple[list[Output], float]:
        """The outputs in the order of the prompts, and the seconds they took."""
        start = time.perf_counter()
        results = self._call([self._pieces.id_to_piece(p) for p in prompts])
        seconds = time.perf_counter() - start
        outputs = [
            Output(i, result.sequences_ids[0], result.scores[0])
            for i, result in enumerate(results)
        ]
        return outputs, seconds


def measure(
    peer: Peer, prompts: list[list[int]], repeats: int
) -> tuple[list[Output], list[float]]:
    peer.run(prompts[:64])  # warms up
    seconds = []
    for _ in range(repeats):
        outputs, taken = peer.run(prompts)
        seconds.append(taken)
    return outputs, seconds


def fastest(
    model_dir: str, args: argparse.Namespace, tried: Iterable[Setting]
) -> tuple[list[Output], Timing]:
    """Measures each setting; the one with the quickest repeat wins."""
    tokenizer, prompts = Tokenizer(args.model), common.read_prompts(args)
    found: list[tuple[list[Output], Timing]] = []
    for setting in tried:
        peer = Peer(model_dir, tokenizer, setting)
        outputs, seconds = measure(peer, prompts, args.repeats)
        num_tokens = sum(len(output.tokens) for output in outputs)
        found.append((outputs, Timing(seconds, num_tokens, vars(setting))))
        if args.verbose:
            print(found[-1][1].describe(len(outputs)))
    return min(found, key=lambda result: min(result[1].seconds))


def parse_args() -> argparse.Namespace:
    parser = common.peer_parser(__doc__)
    parser.add_argument("--inter-threads", type=int)
    parser.add_argument("--max-batch-size", type=int)
    parser.add_argument("--verbose", action="store_true", help="print every setting")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as model_dir:
        convert(args.model, model_dir)
        outputs, timing = fastest(model_dir, args, settings(args))
    common.report(args, outputs, timing)


if __name__ == "__main__":
    main()

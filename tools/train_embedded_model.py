"""Trains the embedded translators en-fr and en-fr-draft from scratch.

    pip install -r tools/requirements.txt
    python -m tools.train_embedded_model fra.txt out

fra.txt holds tab-separated English-French sentence pairs: "French - English"
from manythings.org/anki (fra-eng.zip), made of sentences of Tatoeba
(tatoeba.org), CC-BY 2.0 France. Whoever passes on the weights passes on that
attribution. A newer edition of the file gives other splits and other weights.

Writes out/en-fr and out/en-fr-draft (weights in bf16, config, tokenizer) and
out/splits.json (held-out sentences with their references), and prints BLEU.
One GPU, about six minutes. Training ends by the clock, so no two runs give the same
weights; the vocabulary differs from that of models/ too, in about a tenth of its
pieces. To see it work on a CPU:

    python -m tools.train_embedded_model fra.txt out --limit 2000 \\
        --seconds 5 --draft-seconds 2 --num-evaluated 16
"""

import argparse
import json
import random
import shutil
import tempfile
from pathlib import Path

import torch
from transformers.utils import logging

from tools.embedded_model import Tokenizer
from tools.training import evaluation
from tools.training.batches import encode_pairs
from tools.training.corpus import Splits, read_pairs, split
from tools.training.loop import TrainingOptions, train
from tools.training.translator import Shape, Translator
from tools.training.vocabulary import train_pieces

TARGET = Shape(
    hidden_size=256,
    num_layers=6,
    num_heads=4,
    num_kv_heads=2,
    intermediate_size=768,
    dropout=0.15,
)
DRAFT = Shape(
    hidden_size=128,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    intermediate_size=384,
    dropout=0.0,
)


def write_splits(splits: Splits, path: Path) -> None:
    held_out = {"test": list(splits.test.items()), "dev": list(splits.dev.items())}
    path.write_text(json.dumps(held_out, ensure_ascii=False), encoding="utf-8")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("pairs", type=Path, help="fra.txt")
    add("output", type=Path, help="folder to write to")
    add("--seconds", type=float, default=240, help="training time of en-fr")
    add("--draft-seconds", type=float, default=80, help="of en-fr-draft")
    add("--limit", type=int, help="train on the first pairs only")
    add("--num-evaluated", type=int, default=1000, help="test sentences for BLEU")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def train_models(args: argparse.Namespace, splits: Splits, work: Path) -> None:
    pairs = splits.train[: args.limit]
    train_pieces(pairs, work, 6000, ["<en>", "<fr>"])
    tokenizer = Tokenizer(work)
    examples = encode_pairs(tokenizer, pairs)
    for name, shape, options, beam_widths in (
        ("en-fr", TARGET, TrainingOptions(args.seconds, 2e-3), (1, 4, 8)),
        ("en-fr-draft", DRAFT, TrainingOptions(args.draft_seconds, 3e-3), (1, 4)),
    ):
        translator = Translator(shape, tokenizer.pieces.vocab_size(), args.device)
        print(f"{name}: {translator.num_parameters()} parameters, {len(pairs)} pairs")
        train(translator, examples, options)
        translator.save(args.output / name)
        shutil.copy(work / "tokenizer.model", args.output / name)
        sentences = list(splits.test)[: args.num_evaluated]
        test = {sentence: splits.test[sentence] for sentence in sentences}
        evaluation.report(translator, tokenizer, test, beam_widths)


def main() -> None:
    args = parse_args()
    logging.disable_progress_bar()
    torch.manual_seed(0)
    random.seed(0)
    splits = split(read_pairs(args.pairs))
    args.output.mkdir(parents=True, exist_ok=True)
    write_splits(splits, args.output / "splits.json")
    with tempfile.TemporaryDirectory() as work:
        train_models(args, splits, Path(work))


if __name__ == "__main__":
    main()

"""Trains the embedded translator en-fr-marian: an encoder-decoder of Marian's
architecture, from scratch.

    pip install -r tools/requirements.txt
    python -m tools.train_marian fra.txt out

As tools.train_embedded_model, whose data, split, time and number of parameters
it shares, so that the two architectures can be compared: both directions, 240
seconds of one GPU. The attribution that goes with fra.txt is told there. Writes
out/en-fr-marian as transformers' MarianMTModel and MarianTokenizer read it, and
prints BLEU. No two runs give the same weights. To see it work on a CPU:

    python -m tools.train_marian fra.txt out --limit 2000 --seconds 5 \\
        --num-evaluated 16
"""

import argparse
import random
import tempfile
from pathlib import Path

import torch
from transformers.utils import logging

from tools.training import evaluation
from tools.training.batches import encode_pairs
from tools.training.corpus import Splits, read_pairs, split
from tools.training.loop import TrainingOptions, train
from tools.training.marian import MarianShape, MarianTokenizer, MarianTranslator
from tools.training.vocabulary import train_pieces

# 6.23 million parameters; en-fr has 6.26.
SHAPE = MarianShape(
    d_model=256,
    encoder_layers=3,
    decoder_layers=3,
    num_heads=4,
    ffn_dim=752,
    dropout=0.15,
)
# Of 1e-3, 2e-3, 3e-3 and 4e-3, and 16384 and 32768, the best on the 500
# sentences of development.
LEARNING_RATE = 3e-3
BATCH_TOKENS = 32768
# With the two languages, 6000.
NUM_PIECES = 5998


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("pairs", type=Path, help="fra.txt")
    add("output", type=Path, help="folder to write to")
    add("--seconds", type=float, default=240, help="training time")
    add("--limit", type=int, help="train on the first pairs only")
    add("--num-evaluated", type=int, default=1000, help="test sentences for BLEU")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def train_model(args: argparse.Namespace, splits: Splits, work: Path) -> None:
    pairs = splits.train[: args.limit]
    tokenizer = MarianTokenizer(train_pieces(pairs, work, NUM_PIECES, []))
    translator = MarianTranslator(SHAPE, len(tokenizer.vocabulary), args.device)
    print(f"{translator.num_parameters()} parameters, {len(pairs)} pairs")
    options = TrainingOptions(args.seconds, LEARNING_RATE, BATCH_TOKENS)
    train(translator, encode_pairs(tokenizer, pairs), options)
    translator.save(args.output / "en-fr-marian")
    tokenizer.save(args.output / "en-fr-marian")
    sentences = list(splits.test)[: args.num_evaluated]
    test = {sentence: splits.test[sentence] for sentence in sentences}
    evaluation.report(translator, tokenizer, test, (1, 4, 8))


def main() -> None:
    args = parse_args()
    logging.disable_progress_bar()
    logging.set_verbosity_error()  # of max_new_tokens beside max_length
    torch.manual_seed(0)
    random.seed(0)
    with tempfile.TemporaryDirectory() as work:
        train_model(args, split(read_pairs(args.pairs)), Path(work))


if __name__ == "__main__":
    main()

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

import tempfile
from pathlib import Path

from transformers.utils import logging

from tools.training.batches import encode_pairs
from tools.training.loop import TrainingOptions
from tools.training.marian import MarianShape, MarianTokenizer, MarianTranslator
from tools.training.recipe import Recipe, parser
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


def train_model(recipe: Recipe, work: Path) -> None:
    args = recipe.args
    tokenizer = MarianTokenizer(train_pieces(recipe.pairs, work, NUM_PIECES, []))
    translator = MarianTranslator(SHAPE, len(tokenizer.vocabulary), args.device)
    options = TrainingOptions(args.seconds, LEARNING_RATE, BATCH_TOKENS)
    examples = encode_pairs(tokenizer, recipe.pairs)
    tokenizer.save(recipe.train("en-fr-marian", translator, examples, options))
    recipe.report(translator, tokenizer, (1, 4, 8))


def main() -> None:
    recipe = Recipe.begin(parser(__doc__).parse_args())
    logging.set_verbosity_error()  # of max_new_tokens beside max_length
    with tempfile.TemporaryDirectory() as work:
        train_model(recipe, Path(work))


if __name__ == "__main__":
    main()

"""What the recipes of the embedded translators share: their arguments, the data,
and how a translator is trained, written and evaluated.

    recipe = Recipe.begin(parser(__doc__).parse_args())
    examples = encode_pairs(tokenizer, recipe.pairs)
    folder = recipe.train("en-fr", translator, examples, options)
    ...                                      # writes the tokenizer to `folder`
    recipe.report(translator, tokenizer, beam_widths=(1, 4, 8))
"""

import argparse
import random
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers.utils import logging

from tools.embedded_model import Tokenizer
from tools.training import evaluation, loop
from tools.training.batches import Example
from tools.training.corpus import Pair, Splits, read_pairs, split
from tools.training.translator import Translator


def parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments that every recipe has."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("pairs", type=Path, help="fra.txt")
    add("output", type=Path, help="folder to write to")
    add("--seconds", type=float, default=240, help="training time")
    add("--limit", type=int, help="train on the first pairs only")
    add("--num-evaluated", type=int, default=1000, help="test sentences for BLEU")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return made


@dataclass(frozen=True)
class Recipe:
    args: argparse.Namespace
    splits: Splits

    @staticmethod
    def begin(args: argparse.Namespace) -> "Recipe":
        """Seeds all that draws, and reads the pairs."""
        logging.disable_progress_bar()
        torch.manual_seed(0)
        random.seed(0)
        return Recipe(args, split(read_pairs(args.pairs)))

    @property
    def pairs(self) -> list[Pair]:
        """What is trained on."""
        return self.splits.train[: self.args.limit]

    def train(
        self,
        name: str,
        translator: Translator,
        examples: list[Example],
        options: loop.TrainingOptions,
    ) -> Path:
        """Trains, and writes weights and config to a folder, which it returns."""
        size = translator.num_parameters()
        print(f"{name}: {size} parameters, {len(self.pairs)} pairs")
        loop.train(translator, examples, options)
        folder = self.args.output / name
        translator.save(folder)
        return folder

    def report(
        self, translator: Translator, tokenizer: Tokenizer, beam_widths: tuple[int, ...]
    ) -> None:
        """Prints BLEU of the first sentences that were held out."""
        sentences = list(self.splits.test)[: self.args.num_evaluated]
        test = {sentence: self.splits.test[sentence] for sentence in sentences}
        evaluation.report(translator, tokenizer, test, beam_widths)

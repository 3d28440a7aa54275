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

import json
import shutil
import tempfile
from pathlib import Path

from tools.embedded_model import Tokenizer
from tools.training.batches import encode_pairs
from tools.training.corpus import Splits
from tools.training.loop import TrainingOptions
from tools.training.recipe import Recipe, parser
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


def train_models(recipe: Recipe, work: Path) -> None:
    args = recipe.args
    train_pieces(recipe.pairs, work, 6000, ["<en>", "<fr>"])
    tokenizer = Tokenizer(work)
    examples = encode_pairs(tokenizer, recipe.pairs)
    for name, shape, options, beam_widths in (
        ("en-fr", TARGET, TrainingOptions(args.seconds, 2e-3), (1, 4, 8)),
        ("en-fr-draft", DRAFT, TrainingOptions(args.draft_seconds, 3e-3), (1, 4)),
    ):
        translator = Translator(shape, tokenizer.pieces.vocab_size(), args.device)
        folder = recipe.train(name, translator, examples, options)
        shutil.copy(work / "tokenizer.model", folder)
        recipe.report(translator, tokenizer, beam_widths)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument(
        "--draft-seconds", type=float, default=80, help="of en-fr-draft"
    )
    recipe = Recipe.begin(arguments.parse_args())
    recipe.args.output.mkdir(parents=True, exist_ok=True)
    write_splits(recipe.splits, recipe.args.output / "splits.json")
    with tempfile.TemporaryDirectory() as work:
        train_models(recipe, Path(work))


if __name__ == "__main__":
    main()

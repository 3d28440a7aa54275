"""BLEU of translators on the sentences that training held out, by espalier.

    python -m tools.held_out_bleu fra.txt models/en-fr [MODEL...]

Translates the 1,000 English test sentences that tools.training.corpus splits off
fra.txt (--dev: the 500 others) greedily and with 4 and 8 beams, with at most 40
new tokens, and prints BLEU and how many come out as one of their references.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from tools.bleu import bleu
from tools.training.corpus import read_pairs, split

BEAM_WIDTHS = (1, 4, 8)
MAX_NEW_TOKENS = 40


def translate(
    args: argparse.Namespace, model: Path, sentences: list[str], num_beams: int
) -> list[str]:
    params = {"num_beams": num_beams, "max_new_tokens": MAX_NEW_TOKENS}
    with tempfile.TemporaryDirectory() as work:
        source, target = Path(work, "in"), Path(work, "out")
        lines = [json.dumps({"prompt": s, "params": params}) for s in sentences]
        source.write_text("\n".join(lines))
        subprocess.run(
            [args.espalier, "batch", "-m", str(model), "--device", args.device]
            + ["-i", str(source), "-o", str(target)],
            check=True,
        )
        rows = [json.loads(line) for line in target.read_text().splitlines()]
    return [row["hypotheses"][0]["text"] for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=Path, help="fra.txt")
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--dev", action="store_true")
    parser.add_argument("--espalier", default="build/release/bin/espalier")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    splits = split(read_pairs(args.pairs))
    held_out = splits.dev if args.dev else splits.test
    sentences, references = list(held_out), list(held_out.values())
    print("| model | beams | BLEU | as a reference |\n|---|---|---|---|")
    for model in args.models:
        for num_beams in BEAM_WIDTHS:
            texts = translate(args, model, sentences, num_beams)
            exact = sum(text in rows for text, rows in zip(texts, references))
            score = bleu(texts, references)
            print(f"| {model.name} | {num_beams} | {score:.2f} | {exact} |", flush=True)


if __name__ == "__main__":
    main()

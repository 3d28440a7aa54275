#!/usr/bin/env python3
"""Encoding speed on one core, beside Hugging Face's tokenizers in one run.

    tokenizer_speed.py BIN/tokenizer_speed [TEXT]

TEXT is a file of prose, a paragraph a line; without it the English sentences of
../shared/data/fra.txt are taken, or this project's own documents. Vocabularies
of 32,000 tokens, or as many as the text gives, are trained on it. The rounds of
both take turns, and processor time counts; the median of each and their ratio
are printed. Needs Python's package `tokenizers`.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import (Regex, Tokenizer, decoders, models,  # noqa: E402
                        normalizers, pre_tokenizers, trainers)

ROOT = Path(__file__).resolve().parents[2]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DOCUMENT_BYTES = 4000
TURNS = 5
VOCAB_SIZE = 32000


def prose() -> list[str]:
    if len(sys.argv) > 2:
        return Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()
    pairs = ROOT.parent / "shared/data/fra.txt"
    if pairs.exists():
        return [line.split("\t")[0] for line in
                pairs.read_text(encoding="utf-8").splitlines()]
    return [line for path in sorted(ROOT.glob("docs/*.md"))
            for line in path.read_text(encoding="utf-8").splitlines()]


def documents(lines: list[str]) -> list[str]:
    joined, texts = "", []
    for line in lines:
        joined += line + " "
        if len(joined) >= DOCUMENT_BYTES:
            texts.append(joined)
            joined = ""
    return [*texts, joined]


def byte_level(lines: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def sentencepiece_bpe(lines: list[str]) -> Tokenizer:
    training = Tokenizer(models.BPE(unk_token="<unk>"))
    training.pre_tokenizer = pre_tokenizers.Metaspace()
    training.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, show_progress=False, special_tokens=["<unk>"]))
    tokenizer = Tokenizer(training.model)
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return tokenizer


def unigram(lines: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(lines, trainers.UnigramTrainer(
        vocab_size=8000, show_progress=False, unk_token="<unk>",
        special_tokens=["<unk>"]))
    return tokenizer


def compare(name: str, tokenizer: Tokenizer, texts: list[str]) -> None:
    num_bytes = sum(len(text.encode()) for text in texts)
    asked = "".join(json.dumps(text) + "\n" for text in texts)
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "tokenizer.json")
        tokenizer.save(path)
        for _ in range(TURNS):
            run = subprocess.run([sys.argv[1], path, "3"], input=asked,
                                 check=True, capture_output=True, text=True)
            rounds = [line.split() for line in run.stdout.splitlines()]
            ours.append(max(float(speed) for speed, _ in rounds))
            best = 0.0
            for _ in range(3):
                begin = time.process_time()
                encodings = tokenizer.encode_batch_fast(
                    texts, add_special_tokens=False)
                best = max(best, num_bytes / 1e6
                           / (time.process_time() - begin))
            theirs.append(best)
            tokens = sum(len(encoding.ids) for encoding in encodings)
            assert tokens == int(rounds[0][1]), (name, tokens, rounds[0])
    one, two = statistics.median(ours), statistics.median(theirs)
    print(f"{name:20} {tokenizer.get_vocab_size():6} tokens  "
          f"{num_bytes / 1e6:.2f} MB  {one:6.1f} MB/s  tokenizers {two:6.1f}"
          f" MB/s  {one / two:.1f} times")


def main() -> None:
    lines = prose()
    texts = documents(lines)
    compare("byte-level BPE", byte_level(lines), texts)
    compare("SentencePiece BPE", sentencepiece_bpe(lines), texts)
    compare("Unigram", unigram(lines), texts)


if __name__ == "__main__":
    main()

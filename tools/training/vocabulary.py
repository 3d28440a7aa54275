"""The SentencePiece vocabulary of a translator."""

from pathlib import Path

import sentencepiece

from tools.embedded_model import BOS, EOS, PAD
from tools.training.corpus import Pair


def train_pieces(
    pairs: list[Pair], work: Path, vocab_size: int, symbols: list[str]
) -> Path:
    """One vocabulary for both languages, left in `work`; returns its path. Ids:
    the unknown token, BOS, EOS and PAD, then the symbols, then bytes and pieces."""
    corpus = work / "corpus.txt"
    with corpus.open("w", encoding="utf-8") as out:
        out.writelines(f"{english}\n{french}\n" for english, french in pairs)
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus),
        model_prefix=str(work / "tokenizer"),
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        model_type="unigram",
        byte_fallback=True,
        character_coverage=0.9995,
        user_defined_symbols=symbols,
        unk_id=0,
        bos_id=BOS,
        eos_id=EOS,
        pad_id=PAD,
        normalization_rule_name="identity",
        remove_extra_whitespaces=True,
        split_digits=True,
        minloglevel=2,
    )
    return work / "tokenizer.model"

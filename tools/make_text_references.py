"""Makes tokenizers of encoder-decoder models, and what transformers makes of them.

    python -m tools.make_text_references tests/data/text_models
    python -m tools.make_text_references tests/data/text_models --lines 20000 \
        --only marian

Each directory gets the files that a model of its family has beside its weights,
small and trained on the sentences of benchmarks/data, and `references.jsonl`:

- texts: what the tokenizer makes of each, with no special token recognised
  (`plain`), as a prompt (`prompt`: special tokens parsed and added), and of
  Marian as a translation (`output`);
- random tokens and the text that they decode to;
- of multilingual translators texts between languages, or into one: the prompt, and
  the token that is forced to come first (`forced`);
- of the directories named as a model of tests/data/families, whose vocabulary
  they fit, and of translators, which get a small random model: prompts as text and
  the hypotheses of `generate` as tokens and texts.
"""

import argparse
import contextlib
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartTokenizer,
    ByT5Tokenizer,
    M2M100Tokenizer,
    MarianTokenizer,
    PreTrainedTokenizerFast,
    T5Tokenizer,
)
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES
from transformers.utils import logging

from tools.embedded_model import read_jsonl, up_to_end, write_jsonl
from tools.family_shapes import EOS, VOCAB_SIZE, Shape
from tools.make_family_models import make_model

Row = dict[str, Any]

ROOT = Path(__file__).resolve().parents[1]
SEED = 20240817

# Pairs of languages of each translator.
DIRECTIONS = {
    "nllb": [("eng_Latn", "fra_Latn"), ("fra_Latn", "zho_Hans")],
    "nllb_legacy": [("eng_Latn", "fra_Latn"), ("fra_Latn", "zho_Hans")],
    "m2m100": [("en", "fr"), ("fr", "ast")],
    "mbart50": [("en_XX", "fr_XX"), ("fr_XX", "sl_SI")],
    "mbart50_json": [("en_XX", "fr_XX")],
    "mbart_cc25": [("en_XX", "fr_XX"), ("fr_XX", "zh_CN")],
}
# Target languages of MADLAD-400, which takes no source language.
TARGETS = {"madlad": ["fr", "zh_Hant"]}
# Those with a model of their own.
MODELS = {"nllb": "m2m_100", "m2m100": "m2m_100", "mbart50": "mbart", "madlad": "t5"}

# Rules as in NFKC, few enough for a small file.
RULES = {
    "\u00a0": " ",
    "\u3000": " ",
    "\t": " ",
    "\n": " ",
    "\u200b": "",
    "\u00ad": "",
    "\ufb01": "fi",
    "\uff21": "A",
    "e\u0301": "\u00e9",
    "\u2019": "'",
}

ODD = [
    "",
    " ",
    "   ",
    "a",
    ">>fr<<",
    ">>fr<< How are you?",
    ">>de<<It rains.",
    ">>xx<< unknown language",
    " >>fr<< not at the beginning",
    ">> a << b << c",
    ">>fr<<>>de<< twice",
    ">>open",
    "<<fr>>",
    "</s>",
    "a</s>b",
    "a </s> b <unk><pad> c",
    "</s>>>fr<< behind a special token",
    "<s> <mask> <extra_id_0> <extra_id_3>",
    "\u6f22\u5b57 \u4eee\u540d",
    "\u6f22a\u5b57",
    "  runs   of    spaces     ",
    "tab\tand\nline\r\nend",
    "\u00a0no break\u00a0",
    "zero\u200bwidth \ufb01ne \uff21 e\u0301t\u00e9 l\u2019eau",
    "\u2581 a\u2581b \u2581\u2581",
    "\U0001f388\U0001f388 !",
    "\u0000\u0001",
    "<0xE2><0x20>",
    "caf\u00e9 \u0153uvre na\u00efve",
    "ABC 123 .,;:!?'\"-",
    "a" * 300,
    "ab " * 100,
]


def sentences() -> tuple[list[str], list[str]]:
    rows = read_jsonl(ROOT / "benchmarks/data/dev_sentences.jsonl")
    return [row["text"] for row in rows], [r for row in rows for r in row["references"]]


def of_few_characters(lines: list[str], count: int) -> list[str]:
    """The lines that have none but the `count` most frequent characters."""
    counts = Counter("".join(lines))
    known = {c for c, _ in counts.most_common(count)}
    return [line for line in lines if set(line) <= known]


def random_lines(rng: random.Random, count: int) -> list[str]:
    english, french = sentences()
    parts = [w for line in english + french for w in line.split()] + ODD
    lines = list(ODD)
    while len(lines) < count:
        if rng.random() < 0.4:
            lines.append(rng.choice(english + french))
            continue
        joints = ["", " ", " ", "  ", "\n"]
        num_words = rng.randint(1, 9)
        words = [rng.choice(parts) + rng.choice(joints) for _ in range(num_words)]
        lines.append("".join(words))
    return lines


def train_pieces(path: Path, lines: list[str], size: int, **options: Any) -> list[str]:
    """A SentencePiece model of `size` pieces or a few less; returns them."""
    # The model has the names of these files in it.
    with contextlib.chdir(path.parent):
        rules = Path("rules.tsv")
        with rules.open("w", encoding="utf-8") as file:
            for source, target in RULES.items():
                sides = [" ".join(f"{ord(c):X}" for c in x) for x in (source, target)]
                file.write("\t".join(sides) + "\n")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_prefix=path.stem,
            vocab_size=size,
            normalization_rule_tsv=rules.name,
            hard_vocab_limit=False,
            num_threads=1,
            minloglevel=2,
            **options,
        )
        rules.unlink()
    path.with_suffix(".model").rename(path)
    path.with_suffix(".vocab").unlink()
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def make_marian(directory: Path, size: int, num_pieces: int, has_bytes: bool) -> None:
    english, french = sentences()
    if size == VOCAB_SIZE:
        english = of_few_characters(english, 30)
        french = of_few_characters(french, 30)
    options = {
        "byte_fallback": has_bytes,
        "bos_id": -1,
        "eos_id": 0,
        "unk_id": 1,
    }
    source = train_pieces(directory / "source.spm", english, num_pieces, **options)
    target = train_pieces(directory / "target.spm", french, num_pieces, **options)
    # The roles lie where the families' models have theirs. Some pieces of the
    # source have no number, as in published models.
    vocabulary = ["<pad>", "<unk>", "</s>", ">>fr<<", ">>de<<", "\u6f22"]
    for ours, theirs in zip(source[2:], target[2:], strict=False):
        for piece in (ours, theirs):
            if piece not in vocabulary and piece not in {"q", "\u2581How"}:
                vocabulary.append(piece)
    numbers = {piece: i for i, piece in enumerate(vocabulary[:size])}
    (directory / "vocab.json").write_text(
        json.dumps(numbers, ensure_ascii=False, indent=0) + "\n", encoding="utf-8"
    )
    config = {
        "source_lang": "en",
        "target_lang": "fr",
        "separate_vocabs": False,
        "sp_model_kwargs": {},
        "tokenizer_class": "MarianTokenizer",
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
    }
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps(config, indent=1) + "\n")


def make_t5(directory: Path) -> None:
    english, _ = sentences()
    pieces = directory / "spiece.model"
    train_pieces(
        pieces,
        of_few_characters(english, 36),
        56,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
    )
    T5Tokenizer.from_pretrained(directory, extra_ids=4).save_pretrained(directory)


def make_bart(directory: Path) -> None:
    english, _ = sentences()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - 1,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
    )
    tokenizer.train_from_iterator(of_few_characters(english, 40), trainer)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), add_prefix_space=False
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
    ).save_pretrained(directory)
    path = directory / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config["tokenizer_class"] = "BartTokenizer"
    path.write_text(json.dumps(config, indent=1) + "\n")


def make_translator_pieces(directory: Path, size: int, **options: Any) -> list[str]:
    english, french = sentences()
    return train_pieces(
        directory / "sentencepiece.bpe.model",
        of_few_characters(english + french, 44),
        size,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        **options,
    )


def write_config(directory: Path, name: str, config: Row) -> None:
    (directory / name).write_text(json.dumps(config, indent=1) + "\n")


def make_mbart(directory: Path, tokenizer_class: str) -> None:
    make_translator_pieces(directory, 120)
    write_config(
        directory,
        "tokenizer_config.json",
        {"src_lang": None, "tgt_lang": None, "tokenizer_class": tokenizer_class},
    )


def make_nllb(directory: Path, is_legacy: bool) -> None:
    """As published: its tokenizer.json ends texts with English, which the class
    replaces, and has other steps than the class."""
    languages = ["ace_Arab", "eng_Latn", "fra_Latn", "zho_Hans", "zho_Hant"]
    make_translator_pieces(directory, 150, model_type="bpe")
    config = {
        "legacy_behaviour": is_legacy,
        "src_lang": None,
        "tokenizer_class": "NllbTokenizer",
    }
    write_config(directory, "tokenizer_config.json", config)
    AutoTokenizer.from_pretrained(directory).save_pretrained(directory)
    (directory / "sentencepiece.bpe.model").unlink()
    path = directory / "tokenizer.json"
    file = json.loads(path.read_text())
    size = len(file["model"]["vocab"])
    added = [token for token in file["added_tokens"] if token["id"] < size]
    for i, language in enumerate([*languages, "<mask>"]):
        is_mask = language == "<mask>"
        token = {"id": size + i, "content": language, "special": True}
        token |= {"lstrip": is_mask, "normalized": is_mask}
        added.append(token | {"single_word": False, "rstrip": False})
    file["added_tokens"] = added
    file["normalizer"]["normalizers"][1]["content"] = "\u2581"
    english = size + languages.index("eng_Latn")
    special = [("</s>", 2), ("eng_Latn", english)]
    file["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}]
        + [{"SpecialToken": {"id": name, "type_id": 0}} for name, _ in special],
        "pair": [],
        "special_tokens": {
            name: {"id": name, "ids": [token], "tokens": [name]}
            for name, token in special
        },
    }
    path.write_text(json.dumps(file, ensure_ascii=False, indent=1) + "\n")
    write_config(directory, "tokenizer_config.json", config)
    write_config(
        directory, "special_tokens_map.json", {"additional_special_tokens": languages}
    )


def make_m2m100(directory: Path) -> None:
    pieces = make_translator_pieces(directory, 120)
    # Some pieces have no number.
    numbered = ["<s>", "<pad>", "</s>", "<unk>"]
    numbered += [piece for piece in pieces[3:] if piece != "q"]
    write_config(
        directory, "vocab.json", {piece: i for i, piece in enumerate(numbered)}
    )
    write_config(
        directory,
        "tokenizer_config.json",
        {"language_codes": "m2m100", "tokenizer_class": "M2M100Tokenizer"},
    )
    codes = FAIRSEQ_LANGUAGE_CODES["m2m100"]
    write_config(
        directory,
        "special_tokens_map.json",
        {"additional_special_tokens": [f"__{code}__" for code in codes]},
    )


def make_madlad(directory: Path) -> None:
    """As converted from its pieces: tokens of languages, scripts, regions and tasks
    are user-defined pieces, whose score is 0, and the line end is the first."""
    codes = ["translate", "ace_Arab", "fr", "fr_CA", "ms_Arab_BN", "zh", "zh_Hant"]
    codes += ["mass", "Latn", "CA", "back_translated", "en_xx_simple", ""]
    english, french = sentences()
    path = directory / "spiece.model"
    train_pieces(
        path,
        of_few_characters(english + french, 44),
        140,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        user_defined_symbols=["\n", *(f"<2{code}>" for code in codes)],
    )
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    ids = range(processor.get_piece_size())
    pieces = [(processor.id_to_piece(i), processor.get_score(i)) for i in ids]
    path.unlink()
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    space = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), space]
    )
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 2)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="</s>",
        pad_token="<s>",
        unk_token="<unk>",
    ).save_pretrained(directory)
    path = directory / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {"tokenizer_class": "T5Tokenizer"}
    path.write_text(json.dumps(config | {"extra_ids": 0}, indent=1) + "\n")


def num_tokens(tokenizer: Any) -> int:
    """M2M100's len() lacks languages."""
    return max(len(tokenizer), 1 + max(tokenizer.get_vocab().values()))


def make_translator(name: str, directory: Path) -> None:
    """A model for the tokenizer."""
    tokenizer = load(name, directory)
    if name == "madlad":
        config = {
            "vocab_size": num_tokens(tokenizer) + 8,
            "d_model": 16,
            "d_ff": 24,
            "d_kv": 8,
            "num_layers": 1,
            "num_decoder_layers": 1,
            "num_heads": 2,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
            "decoder_start_token_id": 0,
            "pad_token_id": 1,
            "eos_token_id": 2,
        }
        make_model(Shape(name, MODELS[name], config, 0), SEED, directory)
        return
    config = {
        "vocab_size": num_tokens(tokenizer) + 8,
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 16,
        "decoder_ffn_dim": 16,
        "max_position_embeddings": 64,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": None,
    }
    make_model(Shape(name, MODELS[name], config, 0), SEED, directory)


def make_tokenizer(name: str, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    if name == "marian":
        make_marian(directory, VOCAB_SIZE, 44, has_bytes=False)
    elif name == "marian_bytes":
        make_marian(directory, 700, 460, has_bytes=True)
    elif name == "t5":
        make_t5(directory)
    elif name == "byt5":
        write_config(
            directory, "tokenizer_config.json", {"tokenizer_class": "ByT5Tokenizer"}
        )
    elif name == "m2m100":
        make_m2m100(directory)
    elif name == "madlad":
        make_madlad(directory)
    elif name.startswith("nllb"):
        make_nllb(directory, is_legacy=name == "nllb_legacy")
    elif name == "mbart_cc25":
        make_mbart(directory, "MBartTokenizer")
    elif name.startswith("mbart50"):
        make_mbart(directory, "MBart50Tokenizer")
    else:
        make_bart(directory)
    if name == "mbart50_json":
        AutoTokenizer.from_pretrained(directory).save_pretrained(directory)
        (directory / "sentencepiece.bpe.model").unlink()
    if name in MODELS:
        make_translator(name, directory)


def load(name: str, directory: Path) -> Any:
    kind: Any = {"t5": T5Tokenizer, "bart": BartTokenizer}.get(name, MarianTokenizer)
    if name == "madlad":
        # transformers 5 gives T5's unknown token to every vocabulary of the class.
        kind = PreTrainedTokenizerFast
    if name in DIRECTIONS or name == "byt5":
        kind = AutoTokenizer
    return kind.from_pretrained(directory)


def plain_tokens(tokenizer: Any, text: str) -> list[int] | None:
    """No special token is recognised; None where the library does all the same."""
    if isinstance(tokenizer, MarianTokenizer | M2M100Tokenizer | ByT5Tokenizer):
        pieces = tokenizer.tokenize(text, split_special_tokens=True)
        return tokenizer.convert_tokens_to_ids(pieces)
    if any(token in text for token in tokenizer.all_special_tokens):
        return None
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True
    ids = backend.encode(text, add_special_tokens=False).ids
    backend.encode_special_tokens = False
    return ids


def of_text(tokenizer: Any, text: str) -> Row:
    row = {"text": text, "prompt": tokenizer(text)["input_ids"]}
    plain = plain_tokens(tokenizer, text)
    if plain is not None:
        row["plain"] = plain
    if isinstance(tokenizer, MarianTokenizer):
        row["output"] = tokenizer(
            text_target=text, add_special_tokens=False, split_special_tokens=True
        )["input_ids"]
    return row


def of_tokens(tokenizer: Any, rng: random.Random, size: int) -> Row:
    # Of white space at the ends of a text, the engine drops spaces alone.
    white = {f"<0x{byte:02X}>" for byte in range(256) if chr(byte).isspace()}
    white -= {"<0x20>"}
    kept = [t for t in range(size) if tokenizer.convert_ids_to_tokens(t) not in white]
    tokens = [rng.choice(kept) for _ in range(rng.randint(0, 12))]
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    return {"tokens": tokens, "decoded": text}


def of_direction(tokenizer: Any, text: str, source: str, target: str) -> Row:
    inputs = tokenizer._build_translation_inputs(
        text, return_tensors=None, src_lang=source, tgt_lang=target
    )
    return {
        "from": source,
        "to": target,
        "text": text,
        "source": inputs["input_ids"],
        "forced": inputs["forced_bos_token_id"],
    }


def of_target(tokenizer: Any, text: str, target: str) -> Row:
    source = tokenizer(f"<2{target}> {text}")["input_ids"]
    return {"to": target, "text": text, "source": source, "forced": None}


def of_bytes(tokenizer: Any, rng: random.Random) -> Row:
    """Whole characters, as transformers drops parts of some."""
    line = rng.choice(sentences()[1])[: rng.randint(0, 12)]
    parts = [tokenizer(c, add_special_tokens=False)["input_ids"] for c in line]
    parts += [[rng.randrange(259, len(tokenizer))] for _ in range(rng.randint(0, 2))]
    rng.shuffle(parts)
    tokens = [token for part in parts for token in part]
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    return {"tokens": tokens, "decoded": text}


def of_model(
    tokenizer: Any, model: Any, text: str, num_beams: int, forced: int | None = None
) -> Row:
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        sequences = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            num_beams=num_beams,
            num_return_sequences=num_beams,
            max_new_tokens=12,
            **({} if forced is None else {"forced_bos_token_id": forced}),
        ).tolist()
    tokens = [up_to_end(sequence[1:], EOS) for sequence in sequences]
    texts = [tokenizer.decode(t, skip_special_tokens=True) for t in tokens]
    return {
        "text": text,
        "prompt": ids[0].tolist(),
        "num_beams": num_beams,
        "hypotheses": [
            {"tokens": t, "text": s} for t, s in zip(tokens, texts, strict=True)
        ],
    }


def references(name: str, directory: Path, num_lines: int) -> list[Row]:
    rng = random.Random(SEED)
    tokenizer = load(name, directory)
    lines = random_lines(rng, num_lines)
    if name == "byt5":
        # transformers adds no second EOS to a text that ends with one.
        lines += random_lines(rng, num_lines)[len(ODD) :]
        lines = [line for line in lines if not line.rstrip().endswith("</s>")]
        rows = [of_text(tokenizer, line) for line in lines[:num_lines]]
        return rows + [of_bytes(tokenizer, rng) for _ in range(num_lines)]
    rows = [of_text(tokenizer, line) for line in lines]
    size = num_tokens(tokenizer)
    rows += [of_tokens(tokenizer, rng, size) for _ in range(num_lines)]
    directions = DIRECTIONS.get(name, [])
    for source, target in directions:
        texts = rng.sample(sentences()[0], 8)
        rows += [of_direction(tokenizer, text, source, target) for text in texts]
    for target in TARGETS.get(name, []):
        texts = rng.sample(sentences()[0], 8)
        rows += [of_target(tokenizer, text, target) for text in texts]
    if name in MODELS:
        model = AutoModelForSeq2SeqLM.from_pretrained(directory, dtype=torch.float64)
        texts = [t for t in sentences()[0] if len(tokenizer(t)["input_ids"]) <= 40]
        for i, text in enumerate(rng.sample(texts, 16)):
            num_beams = [1, 2, 4][i % 3]
            if name in TARGETS:
                direction = of_target(tokenizer, text, TARGETS[name][i % 2])
                given = f"<2{direction['to']}> {text}"
            else:
                direction = of_direction(tokenizer, text, *directions[i % 2])
                given = text
            forced = direction["forced"]
            row = of_model(tokenizer, model.eval(), given, num_beams, forced)
            row["source"] = row.pop("prompt")
            rows.append(direction | row | {"text": text})
        return rows
    family = ROOT / "tests/data/families" / name
    if not family.exists():
        return rows
    model = AutoModelForSeq2SeqLM.from_pretrained(family, dtype=torch.float64)
    texts = [text for text in sentences()[0] if len(tokenizer(text)["input_ids"]) <= 40]
    for i, text in enumerate(rng.sample(texts, 16)):
        rows.append(of_model(tokenizer, model.eval(), text, [1, 2, 4][i % 3]))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="a directory for one each model")
    parser.add_argument("--only", help="one model's name")
    parser.add_argument("--lines", type=int, default=72, help="texts of each")
    parser.add_argument("--keep", action="store_true", help="the tokenizers there are")
    args = parser.parse_args()
    logging.set_verbosity_error()
    for name in ["marian", "marian_bytes", "t5", "bart", "byt5", *DIRECTIONS, *TARGETS]:
        if args.only not in (None, name):
            continue
        directory = args.output / name
        if not args.keep:
            with tempfile.TemporaryDirectory() as folder:
                make_tokenizer(name, Path(folder))
                shutil.rmtree(directory, ignore_errors=True)
                shutil.copytree(folder, directory)
        rows = references(name, directory, args.lines)
        write_jsonl(directory / "references.jsonl", rows)
        print(name, len(rows), "references,", len(load(name, directory)), "tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())

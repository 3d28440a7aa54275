"""Makes model directories of many combinations of tokenizer files, and what
transformers' AutoTokenizer makes of texts with each.

    python -m tools.make_directory_references tests/data/tokenizer_directories.json
    python -m tools.make_directory_references /tmp/many.json --cases 2000 --seed 7

A case has a vocabulary (tokenizer.model, tokenizer.json, or vocab.json with
merges.txt) and, by chance, tokenizer_config.json with a class, flags, roles and
added_tokens_decoder, added_tokens.json, special_tokens_map.json and a config.json
with the model's type; texts with the tokens that they become, special tokens
parsed and added; and tokens with the text that they decode to without special
ones. Left out are directories that transformers does not load, classes that do
not read a vocabulary of the kind, and what docs/tokenizers.md lists as different.
tests/text/tokenizer/directory_tokenizer_test.cc reads the file; the long form by
ESPALIER_TOKENIZER_DIRECTORIES=/tmp/many.json.
"""

import argparse
import base64
import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer
from transformers.tokenization_utils_base import generate_merges
from transformers.utils import logging

ROOT = Path(__file__).resolve().parent.parent
ROLES = ("bos_token", "eos_token", "unk_token", "pad_token")
NEW = ["<|user|>", "<|end|>", "<|assistant|>", "[TOOL]", "<extra a>", "ünew", "of the",
       "  "]
ODD = [" ", "  ", "\n", "\t", "▁", "   ", "\n\n", "\u3000", " \n ", "日本", "é", "e\u0301",
       "😀", "ﬁ", "ñ", "\u00a0", "a.b", "½", "ß"]
# Class and model type, of vocabularies of each kind.
SPM_CLASSES = [(c, t) for c in ("LlamaTokenizer", "LlamaTokenizerFast", "GemmaTokenizer",
                                "PreTrainedTokenizerFast", None)
               for t in ("llama", "mistral", "phi3", "gemma2", "gemma3_text", "granite",
                         None)]
MERGES_CLASSES = [("Qwen2Tokenizer", "qwen2"), ("Qwen2TokenizerFast", "qwen3"),
                  ("GPT2Tokenizer", "gpt2"), ("GPT2TokenizerFast", "opt"),
                  ("BartTokenizer", "bart"), ("RobertaTokenizer", "bart"),
                  (None, "bart"), (None, "gpt2"), (None, "qwen2")]
BYTE_CLASSES = [*MERGES_CLASSES, ("LlamaTokenizerFast", "llama"),
                ("PreTrainedTokenizerFast", "llama"), ("LlamaTokenizer", "qwen2"),
                ("GPT2Tokenizer", "phi3"), ("PreTrainedTokenizerFast", "stablelm")]

Files = dict[str, str]


def corpus() -> list[str]:
    lines = [line for name in ("README.md", "docs/architecture.md")
             for line in (ROOT / name).read_text().splitlines() if line.strip()]
    return lines[:160] + ["Où se trouve la gare ? J'ai perdu mes clés ce matin.",
                          "Wie geht's? Straße größer", "日本語のテキスト 漢字",
                          "Привет мир", "  spaces   in  here", "    return x + 1"] * 3


def train_spm(lines: list[str], **options: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_prefix=f"{folder}/m", minloglevel=2,
            hard_vocab_limit=False, character_coverage=0.98, **options)
        return Path(folder, "m.model").read_bytes()


def sentencepiece_models(lines: list[str]) -> dict[str, bytes]:
    raw = {"normalization_rule_name": "identity"}
    gemma = {"add_dummy_prefix": False, "pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3,
             "byte_fallback": True, "remove_extra_whitespaces": False}
    return {
        "llama": train_spm(lines, model_type="bpe", vocab_size=380, byte_fallback=True,
                           remove_extra_whitespaces=False, **raw),
        "trimmed": train_spm(lines, model_type="bpe", vocab_size=380, byte_fallback=True,
                             **raw),
        "marked": train_spm(lines, model_type="bpe", vocab_size=160,
                            user_defined_symbols=["<|im_start|>", "<sep>", "a.b"], **raw),
        "gemma": train_spm(lines, model_type="bpe", vocab_size=400, **gemma, **raw,
                           user_defined_symbols=["<start_of_turn>", "<end_of_turn>", "\n",
                                                 "\n\n", "▁▁", "<table>"],
                           control_symbols=["<ctrl>"]),
        "gemma_named": train_spm(lines, model_type="bpe", vocab_size=400, **gemma, **raw,
                                 bos_piece="<bos>", eos_piece="<eos>",
                                 user_defined_symbols=["<mask>", "<start_of_turn>", "▁▁",
                                                       "▁▁▁"]),
        "unigram": train_spm(lines, model_type="unigram", vocab_size=160,
                             control_symbols=["[INST]", "[/INST]"], **raw),
        "unigram_bytes": train_spm(lines, model_type="unigram", vocab_size=380,
                                   byte_fallback=True, user_defined_symbols=["<x>"], **raw),
    }


def byte_level(lines: list[str], special: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=330, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=special, show_progress=False))
    return tokenizer


def spm_as_json(model: bytes, prepends: bool) -> Tokenizer:
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    vocab = {pieces.id_to_piece(i): i for i in range(pieces.get_piece_size())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=generate_merges(vocab),
                                     fuse_unk=True, byte_fallback=True, unk_token="<unk>"))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    replace = normalizers.Replace(" ", "▁")
    if prepends:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace])
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        tokenizer.normalizer = replace
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens([AddedToken(pieces.id_to_piece(i), special=True)
                                  for i in range(4)])
    return tokenizer


class Maker:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines = corpus()
        self.spm = sentencepiece_models(self.lines)
        self.shared: dict[str, dict[str, str]] = {
            f"{name}.model": {"base64": base64.b64encode(model).decode()}
            for name, model in self.spm.items()}
        self.roles: dict[str, list[str]] = {}
        self.sizes: dict[str, int] = {}
        self.added: dict[str, list[dict[str, Any]]] = {}
        for name, model in self.spm.items():
            pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
            self.roles[name] = [pieces.id_to_piece(i) for i in range(4)]
            self.sizes[name] = pieces.get_piece_size()
        self.byte_names: list[str] = []
        self.json_names: list[str] = []
        for name, special in (("gpt2", ["<|endoftext|>"]),
                              ("bart", ["<s>", "<pad>", "</s>", "<unk>"])):
            tokenizer = byte_level(self.lines, special)
            file = json.loads(tokenizer.to_str())["model"]
            merges = "\n".join(m if isinstance(m, str) else " ".join(m)
                               for m in file["merges"])
            self.share(f"{name}.vocab", json.dumps(file["vocab"]))
            self.share(f"{name}.merges", f"#version: 0.2\n{merges}\n")
            self.byte_names.append(name)
            self.roles[name] = special
            self.sizes[name] = tokenizer.get_vocab_size()
            self.add_json(f"{name}_json", tokenizer, special)
        for name in ("llama", "gemma", "gemma_named"):
            tokenizer = spm_as_json(self.spm[name], name == "llama")
            self.add_json(f"{name}_json", tokenizer, self.roles[name])

    def share(self, name: str, text: str) -> None:
        self.shared[name] = {"text": text}

    def add_json(self, name: str, tokenizer: Tokenizer, roles: list[str]) -> None:
        """The tokenizer.json as it is, and with a template and added tokens."""
        for suffix in ("", "_more"):
            if suffix:
                first, last = roles[0], roles[-1]
                tokenizer.post_processor = processors.TemplateProcessing(
                    single=f"{first} $A {last}",
                    special_tokens=[(t, tokenizer.token_to_id(t)) for t in (first, last)])
                tokenizer.add_special_tokens([AddedToken("<|user|>", rstrip=True),
                                              AddedToken("<|end|>", lstrip=True)])
                tokenizer.add_tokens([AddedToken("[TOOL]"), AddedToken("of the")])
            full = name + suffix
            self.json_names.append(full)
            text = tokenizer.to_str()
            self.share(f"{full}.json", text)
            self.added[full] = json.loads(text)["added_tokens"]
            self.roles[full] = roles
            self.sizes[full] = tokenizer.get_vocab_size()

    def token(self, content: str, special: bool) -> dict[str, Any]:
        token = {"content": content, "special": special}
        for flag in ("lstrip", "rstrip", "single_word", "normalized"):
            token[flag] = self.random.random() < 0.25
        # A special token that its normalizer changes, or that the vocabulary
        # spells where it is no single word, is spelt otherwise here.
        if special:
            token["normalized"] = token["single_word"] = False
        return token

    def text(self, marks: list[str]) -> str:
        parts = []
        for _ in range(self.random.randint(1, 6)):
            kind = self.random.random()
            if kind < 0.35:
                parts.append(self.random.choice(marks))
            elif kind < 0.75:
                line = self.random.choice(self.lines)
                begin = self.random.randrange(len(line))
                parts.append(line[begin:begin + self.random.randint(1, 20)])
            else:
                parts.append(self.random.choice(ODD))
        return "".join(parts)

    def vocabulary(self) -> tuple[str, Files, Any]:
        """Its name, files, and the classes that may read it."""
        choice = self.random.choice
        kind = choice(["spm"] * 5 + ["merges"] * 2 + ["json"] * 3)
        if kind == "spm":
            name = choice(list(self.spm))
            return name, {"tokenizer.model": f"@{name}.model"}, SPM_CLASSES
        if kind == "merges":
            name = choice(self.byte_names)
            return name, {"vocab.json": f"@{name}.vocab",
                          "merges.txt": f"@{name}.merges"}, MERGES_CLASSES
        name = choice(self.json_names)
        files = {"tokenizer.json": f"@{name}.json"}
        if name.startswith(("gpt2", "bart")):
            return name, files, BYTE_CLASSES
        if self.random.random() < 0.4:
            files["tokenizer.model"] = f"@{name.split('_json')[0]}.model"
        return name, files, SPM_CLASSES

    def role(self, name: str) -> Any:
        kind, roles = self.random.random(), self.roles[name]
        if kind < 0.08:
            return None
        if kind < 0.16:
            return self.random.choice(NEW[:4])
        if kind < 0.24:
            token = self.token(self.random.choice(roles), True)
            return {"__type": "AddedToken", **token}
        return self.random.choice(roles)

    def config(self, name: str, files: Files, marks: list[str]) -> dict[str, Any]:
        rand, config = self.random, {}
        for flag in ("add_bos_token", "add_eos_token", "legacy", "add_prefix_space"):
            if rand.random() < 0.4:
                config[flag] = rand.random() < 0.5
        for role in ROLES:
            if rand.random() < 0.65:
                config[role] = self.role(name)
        added, new = self.added.get(name, []), {}
        for content in rand.sample(NEW, rand.randint(1, 4)):
            if all(token["content"] != content for token in added):
                new[content] = self.sizes[name] + len(new)
        if rand.random() < (0.4 if added else 0.5):
            listed = {str(t["id"]): {k: v for k, v in t.items() if k != "id"}
                      for t in added}
            for i, role in enumerate(self.roles[name]):
                if not added and rand.random() < 0.6:
                    listed[str(i)] = self.token(role, True)
            for content, i in new.items():
                listed[str(i)] = self.token(content, rand.random() < 0.5)
            config["added_tokens_decoder"] = listed
            marks += new
        elif not added and rand.random() < 0.6:
            files["added_tokens.json"] = json.dumps(new)
            marks += new
        if rand.random() < 0.25:
            field = rand.choice(["additional_special_tokens", "extra_special_tokens"])
            config[field] = rand.sample(marks + NEW[:3], rand.randint(0, 2))
        if rand.random() < 0.1:
            config["image_token"] = rand.choice(["<image>", *marks])
        return config

    def directory(self) -> tuple[Files, list[str]]:
        rand = self.random
        name, files, classes = self.vocabulary()
        marks = list(self.roles[name])
        config = self.config(name, files, marks)
        tokenizer_class, model_type = rand.choice(classes)
        if tokenizer_class:
            config["tokenizer_class"] = tokenizer_class
        if rand.random() < 0.3:
            tokens = {}
            for role in ROLES:
                if rand.random() < 0.5:
                    token = self.token(rand.choice(self.roles[name]), True)
                    del token["special"]
                    tokens[role] = rand.choice([token["content"], token])
            files["special_tokens_map.json"] = json.dumps(tokens)
        files["tokenizer_config.json"] = json.dumps(config, ensure_ascii=False)
        if model_type:
            files["config.json"] = json.dumps({"model_type": model_type})
        return files, marks + NEW

    def write(self, files: Files, folder: Path) -> None:
        for name, content in files.items():
            shared = self.shared.get(content.removeprefix("@"), {"text": content})
            data = (base64.b64decode(shared["base64"]) if "base64" in shared
                    else shared["text"].encode())
            (folder / name).write_bytes(data)

    def case(self) -> dict[str, Any] | None:
        files, marks = self.directory()
        texts = [self.text(marks) for _ in range(4)]
        with tempfile.TemporaryDirectory() as folder:
            self.write(files, Path(folder))
            try:
                tokenizer = AutoTokenizer.from_pretrained(folder)
                tokens = [tokenizer(text).input_ids for text in texts]
            except BaseException as error:  # a panic of the library is no Exception
                if isinstance(error, KeyboardInterrupt):
                    raise
                return None
        lists = [*tokens, [self.random.randrange(len(tokenizer)) for _ in range(8)]]
        decoded = [(ids, tokenizer.decode(ids, skip_special_tokens=True)) for ids in lists]
        return {"files": files,
                "texts": [{"text": text, "tokens": ids}
                          for text, ids in zip(texts, tokens, strict=True)],
                "decoded": [{"tokens": ids, "text": text} for ids, text in decoded
                            if "\ufffd" not in text]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--cases", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.set_verbosity_error()
    maker = Maker(args.seed)
    cases: list[dict[str, Any]] = []
    while len(cases) < args.cases:
        if (case := maker.case()) is not None:
            cases.append(case)
    used = {content[1:] for case in cases for content in case["files"].values()
            if content.startswith("@")}
    shared = {name: file for name, file in maker.shared.items() if name in used}
    with args.path.open("w") as out:
        out.write('{"shared": ' + json.dumps(shared, ensure_ascii=False) + ',\n"cases": [\n')
        out.write(",\n".join(json.dumps(case, ensure_ascii=False) for case in cases))
        out.write("\n]}\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares tokenizers with real vocabularies of up to 256,000 tokens.

    compare_real_vocabularies.py ENCODE_LINES FOLDER

FOLDER has the files ggml-vocab-*.gguf of llama.cpp, with their .inp and .out,
as the source package of PyPI's llama_cpp_python carries them. The byte-level
ones are made a tokenizer.json, with the pre-tokenizer that their models have.
Tokens must be those of Hugging Face's library, on lines of many kinds
(compare_tokenizers.py), and those that the .out files have of the .inp files.
Needs Python's packages tokenizers and gguf; not a test of the build, for it
reads 100 MB that are not ours.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from gguf import GGUFReader
from tokenizers import Tokenizer

import compare_tokenizers

CONTROL, USER_DEFINED = 3, 4
SEPARATOR = "\n__ggml_vocab_test__\n"


def byte_level(use_regex: bool) -> dict:
    return {"type": "ByteLevel", "add_prefix_space": False,
            "trim_offsets": True, "use_regex": use_regex}


def split(pattern: str) -> dict:
    return {"type": "Split", "pattern": {"Regex": pattern},
            "behavior": "Isolated", "invert": False}


def sequence(*steps: dict) -> dict:
    return {"type": "Sequence", "pretokenizers": list(steps)}


STARCODER = sequence({"type": "Digits", "individual_digits": True},
                     byte_level(True))
# By tokenizer.ggml.pre.
PRE_TOKENIZERS = {
    "gpt-2": byte_level(True),
    "mpt": byte_level(True),
    "llama-bpe": sequence(split(compare_tokenizers.LLAMA3), byte_level(False)),
    "qwen2": sequence(split(compare_tokenizers.QWEN), byte_level(False)),
    "falcon": sequence({"type": "Punctuation", "behavior": "Contiguous"},
                       byte_level(True),
                       {"type": "Digits", "individual_digits": False},
                       split("[0-9][0-9][0-9]")),
    "starcoder": STARCODER,
    "refact": STARCODER,
    "command-r": STARCODER,
}


def tokenizer_json(path: Path) -> dict | None:
    """The vocabulary as a tokenizer.json; None if it is of another kind."""
    fields = GGUFReader(path).fields

    def value(name: str):
        field = fields.get("tokenizer.ggml." + name)
        return None if field is None else field.contents()

    pre = value("pre")
    if value("model") != "gpt2" or pre not in PRE_TOKENIZERS:
        return None
    pieces = value("tokens")
    added = [{"id": id, "content": piece, "special": kind == CONTROL,
              "normalized": False, "single_word": False, "lstrip": False,
              "rstrip": False}
             for id, (piece, kind) in enumerate(zip(pieces,
                                                    value("token_type")))
             if kind in (CONTROL, USER_DEFINED)]
    return {"version": "1.0", "added_tokens": added,
            "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
            "pre_tokenizer": PRE_TOKENIZERS[pre], "post_processor": None,
            "decoder": byte_level(True),
            "model": {"type": "BPE", "ignore_merges": pre == "llama-bpe",
                      "vocab": {piece: id for id, piece in enumerate(pieces)},
                      "merges": value("merges")}}


def count_wrong_cases(name: str, content: dict, program: str,
                      path: Path) -> int:
    """How many texts of the .inp file have other tokens than in the .out."""
    cases = Path(f"{path}.inp").read_bytes().decode().split(SEPARATOR)
    expected = [[int(token) for token in line.split()]
                for line in Path(f"{path}.out").read_text().split("\n")]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        file.write_text(json.dumps(content))
        run = subprocess.run(
            [program, str(file)], check=True, capture_output=True, text=True,
            input="".join(json.dumps(case) + "\n" for case in cases))
    got = [json.loads(line)[0] for line in run.stdout.split("\n") if line]
    wrong = sum(one != two for one, two in zip(got, expected))
    print(f"{name}: {len(got)} cases of llama.cpp, {wrong} differ")
    return wrong


def main(program: str, folder: str) -> int:
    words = [line for line in compare_tokenizers.corpus() if line]
    number = int(os.environ.get("ESPALIER_TOKENIZER_LINES", "3000"))
    lines = compare_tokenizers.test_lines(number, words)
    faults = 0
    for path in sorted(Path(folder).glob("ggml-vocab-*.gguf")):
        name = path.stem.removeprefix("ggml-vocab-")
        content = tokenizer_json(path)
        if content is None:
            print(f"{name}: left out, of another kind")
            continue
        tokenizer = Tokenizer.from_str(json.dumps(content))
        # By a name of its own: Falcon's drops bytes that it has no token for.
        faults += compare_tokenizers.compare(f"{name} vocabulary", tokenizer,
                                             program, lines)
        faults += count_wrong_cases(name, content, program, path)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

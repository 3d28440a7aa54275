#!/usr/bin/env python3
"""Compares espalier's tokenizers with Hugging Face's, token for token.

    compare_tokenizers.py ENCODE_LINES [FAMILY...]
    compare_tokenizers.py --fixtures FOLDER

Trains small vocabularies of several families with the trainers of the
`tokenizers` package, has ENCODE_LINES (tests/text/encode_lines.cc) encode and
decode lines of many kinds with them, and compares the tokens and the texts with
what the package makes of the same tokenizer.json: plain, where no special token
is recognised, and with special tokens parsed and added. Incremental
detokenisation is checked by ENCODE_LINES itself. With --fixtures it writes what
tests/text/tokenizer/json_tokenizer_test.cc reads: tiny vocabularies, lines, and what the
package makes of them.

ESPALIER_TOKENIZER_LINES is how many lines a family gets (3,000 unless it says
otherwise; the long form is 50000). The package goes into a virtual environment
of its own below ESPALIER_TOKENIZER_VENV, or a folder for temporary files; exit
status 77, "skipped", where no package index is reached.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata
import venv
from pathlib import Path

PACKAGE = "tokenizers==0.23.3"
SKIPPED = 77
ROOT = Path(__file__).resolve().parents[2]
SEED = 20240717

GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
        r"|\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def environment() -> Path | None:
    """The Python of an environment with the package; None without an index."""
    folder = Path(os.environ.get("ESPALIER_TOKENIZER_VENV")
                  or Path(tempfile.gettempdir()) / "espalier-tokenizers")
    python = folder / "bin/python"
    check = [str(python), "-c", "import tokenizers, sys; "
             f"sys.exit(tokenizers.__version__ != '{PACKAGE.split('==')[1]}')"]
    if python.exists() and subprocess.run(check, check=False,
                                          capture_output=True).returncode == 0:
        return python
    venv.create(folder, with_pip=True, clear=True)
    install = subprocess.run(
        [str(python), "-m", "pip", "install", "-q", "--timeout", "10",
         "--retries", "1", PACKAGE], check=False, capture_output=True,
        text=True)
    if install.returncode == 0:
        return python
    print(install.stderr, file=sys.stderr)
    return None


# ---------------------------------------------------------------- the texts


def corpus() -> list[str]:
    """Lines to train on: sentence pairs where they are, else our own texts."""
    pairs = ROOT.parent / "shared/data/fra.txt"
    if pairs.exists():
        text = pairs.read_text(encoding="utf-8", errors="replace")
        lines = [part for line in text.splitlines()
                 for part in line.split("\t")[:2]]
    else:
        files = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("*/*.h"),
                        *ROOT.glob("*/*.cc"), *ROOT.glob("tests/data/*.jsonl")])
        # Lines of references have thousands of characters, most of them digits.
        lines = [line[:200] for path in files for line in
                 path.read_text(encoding="utf-8", errors="replace").splitlines()]
    random.Random(SEED).shuffle(lines)
    return lines[:20000]


SCRIPTS = [
    "Привет, как дела?", "Καλημέρα σας", "你好，世界", "日本語のテキストです。",
    "한국어 문장입니다", "مرحبا بالعالم", "שלום עולם", "नमस्ते दुनिया",
    "สวัสดีชาวโลก", "ქართული ენა", "Հայերեն", "አማርኛ", "Tiếng Việt", "İstanbul",
    "ﬁne ﬂow ﬀ ½ ² Ⅳ ㎏", "ｆｕｌｌｗｉｄｔｈ　ｓｐａｃｅ", "ΣΊΣΥΦΟΣ", "straße STRASSE",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "ſtrange 'ſ 'S 'LL 'Ve",
]
EMOJI = ["🎈", "👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇫🇷", "❤️", "☺", "🧑🏿‍🚀"]
COMBINING = ["e\u0301", "a\u0308\u0323", "n\u0303o", "\u0301x", "Z\u0335\u0321",
             "ﬁ\u0301", "\u1100\u1161\u11a8", "각", "ä\u0304"]
CODE = ["for (int i = 0; i < n; ++i) {\n    sum += a[i];\n}",
        "def f(x):\n\treturn x**2  # squared", "SELECT * FROM t WHERE a='b';",
        "<div class=\"x\">text</div>", "#include <vector>", "x->y::z(&w)",
        "https://example.org/a?b=c&d=%20#e", "0x1F 3.14e-10 1,234,567.89",
        "\\begin{eq} \\frac{a}{b} \\end{eq}", "{\"key\": [1, 2, null]}"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n ", "\u00a0",
          "\u3000", "\u2003", "\u200b", "\u180e", "\u2028", "\x85", "        "]
CONTROL = ["\x00", "\x01", "\x07", "\x1b[0m", "\x7f", "\ufeff", "\ufffd",
           "\u200d", "\u200e", "\ue000", "\U0010ffff"]
SPECIAL = ["<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<|endoftext|>",
           "<pad>", "<mask>", "<tool_call>", "<0x41>", "<0xE2>", "▁", "▁▁", "Ġ",
           "<|im_start", "im_end|>", "word", "Word"]


def random_character(rng: random.Random) -> str:
    limit = rng.choice([0x80, 0x250, 0x3000, 0xd800, 0x10000, 0x1f900])
    while True:
        code = rng.randrange(1, limit)
        if not 0xd800 <= code < 0xe000 and known(chr(code)):
            return chr(code)


def known(character: str) -> bool:
    """Whether every table has it: those of the package are of Unicode 8 to 16,
    ours of 14 and 15, and Python brings one of 3.2."""
    return unicodedata.ucd_3_2_0.category(character) not in ("Cn", "Cs")


def test_lines(number: int, words: list[str]) -> list[str]:
    rng = random.Random(SEED + 1)
    kinds = [SCRIPTS, EMOJI, COMBINING, CODE, SPACES, CONTROL, SPECIAL]
    lines = ["", " ", "a", " a", "a ", "  a  ", "\n", *SCRIPTS, *EMOJI,
             *COMBINING, *CODE, *SPACES, *CONTROL, *SPECIAL,
             "a" * 300, " " * 300, "ab" * 200, "é" * 120, "🎈" * 50,
             "word" * 50, "\n" * 99, "1234567890" * 20, "-" * 200]
    while len(lines) < number:
        choice = rng.random()
        if choice < 0.3:
            lines.append(rng.choice(words))
        elif choice < 0.4:
            lines.append("".join(random_character(rng)
                                 for _ in range(rng.randrange(1, 30))))
        else:
            parts = []
            for _ in range(rng.randrange(1, 12)):
                kind = rng.choice([words, *kinds])
                part = rng.choice(kind)
                if kind is words and rng.random() < 0.7:
                    part = rng.choice(part.split() or [""])
                parts.append(part)
                if rng.random() < 0.5:
                    parts.append(" ")
            lines.append("".join(parts))
    return lines[:number]


# ----------------------------------------------------------- the vocabularies


def families(size: int = 0) -> dict:
    """What makes the tokenizer of each family, of its own size or of `size`."""
    from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                            normalizers, pre_tokenizers, processors, trainers)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    lines = corpus()

    def trained(tokenizer, trainer):
        tokenizer.train_from_iterator(lines, trainer)
        return tokenizer

    def chat_tokens(tokenizer):
        tokenizer.add_special_tokens(
            ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
        tokenizer.add_tokens([
            AddedToken("<tool_call>", normalized=False),
            AddedToken("   ", normalized=False),
            AddedToken("<mask>", lstrip=True, rstrip=True, special=True),
            AddedToken("word", single_word=True, normalized=False)])
        return tokenizer

    def byte_level(pattern, normalizer=None, ignore_merges=False,
                   prefix=False, special=True):
        tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
        if pattern is None:
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
                add_prefix_space=prefix)
        else:
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=prefix,
                                         use_regex=False)])
        if normalizer:
            tokenizer.normalizer = normalizer
        tokenizer.decoder = decoders.ByteLevel()
        trained(tokenizer, trainers.BpeTrainer(
            vocab_size=size or 3000, initial_alphabet=alphabet, show_progress=False))
        if special:
            chat_tokens(tokenizer)
            tokenizer.post_processor = processors.Sequence([
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(
                    single="<|endoftext|> $A",
                    special_tokens=[("<|endoftext|>",
                                     tokenizer.token_to_id("<|endoftext|>"))])
            ])
        return tokenizer

    def falcon():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            pre_tokenizers.Digits(),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
        tokenizer.decoder = decoders.ByteLevel()
        return chat_tokens(trained(tokenizer, trainers.BpeTrainer(
            vocab_size=size or 2000, initial_alphabet=alphabet, show_progress=False)))

    def with_byte_tokens(tokenizer):
        """The same with a token for each byte, as SentencePiece has them."""
        data = json.loads(tokenizer.to_str())
        model = data["model"]
        names = [f"<0x{byte:02X}>" for byte in range(256)]
        if model["type"] == "BPE":
            for name in names:
                model["vocab"].setdefault(name, len(model["vocab"]))
        else:
            worst = min(score for _, score in model["vocab"])
            there = {piece for piece, _ in model["vocab"]}
            model["vocab"] += [[name, worst - 5] for name in names
                               if name not in there]
        model["byte_fallback"] = True
        return Tokenizer.from_str(json.dumps(data))

    def sentencepiece_bpe(metaspace):
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
        trainer = trainers.BpeTrainer(
            vocab_size=size or 3000, show_progress=False,
            special_tokens=["<unk>", "<s>", "</s>"])
        if metaspace:
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
                prepend_scheme="first", split=False)
            tokenizer.decoder = decoders.Sequence([
                decoders.Replace("▁", " "), decoders.ByteFallback(),
                decoders.Fuse(), decoders.Strip(" ", 1, 0)])
            # Trained on words, used on whole texts.
            training = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
            training.pre_tokenizer = pre_tokenizers.Metaspace()
            trained(training, trainer)
            tokenizer.model = training.model
        else:
            training = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
            training.pre_tokenizer = pre_tokenizers.Metaspace()
            trained(training, trainer)
            tokenizer.model = training.model
            tokenizer.normalizer = normalizers.Sequence([
                normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
            tokenizer.decoder = decoders.Sequence([
                decoders.Replace("▁", " "), decoders.ByteFallback(),
                decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        tokenizer = with_byte_tokens(tokenizer)
        tokenizer.add_special_tokens([
            AddedToken(name, normalized=False, special=True)
            for name in ["<unk>", "<s>", "</s>"]])
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 1)])
        return tokenizer

    def no_fallback():
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.normalizer = normalizers.Sequence([
            normalizers.NFD(), normalizers.Lowercase(),
            normalizers.StripAccents(),
            normalizers.Replace(Regex(" {2,}"), " ")])
        tokenizer.decoder = decoders.Fuse()
        trained(tokenizer, trainers.BpeTrainer(
            vocab_size=size or 1000, show_progress=False,
            special_tokens=["<unk>", "<pad>"]))
        tokenizer.add_tokens([AddedToken("Word", normalized=True)])
        return tokenizer

    def unigram(normalizer, byte_fallback, scheme="always", split=True):
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
            prepend_scheme=scheme, split=split)
        tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
        training = Tokenizer(models.Unigram())
        training.normalizer = normalizer
        training.pre_tokenizer = pre_tokenizers.Metaspace()
        trained(training, trainers.UnigramTrainer(
            vocab_size=size or 2000, show_progress=False, unk_token="<unk>",
            special_tokens=["<pad>", "</s>", "<unk>"]))
        tokenizer.model = training.model
        if byte_fallback:
            tokenizer = with_byte_tokens(tokenizer)
            tokenizer.decoder = decoders.Sequence([
                decoders.Replace("▁", " "), decoders.ByteFallback(),
                decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
        tokenizer.post_processor = processors.TemplateProcessing(
            single="$A </s>",
            special_tokens=[("</s>", tokenizer.token_to_id("</s>"))])
        return tokenizer

    def charsmap():
        return normalizers.Sequence([
            normalizers.Precompiled(charsmap_of_fixture()),
            normalizers.Strip(left=False, right=True),
            normalizers.Replace(Regex(" {2,}"), "▁")])

    return {
        "gpt2": lambda: byte_level(None),
        "gpt2_prefix": lambda: byte_level(None, prefix=True),
        "llama3": lambda: byte_level(LLAMA3, ignore_merges=True),
        "qwen": lambda: byte_level(QWEN, normalizers.NFC()),
        "o200k": lambda: byte_level(O200K, normalizers.NFKC()),
        "falcon": falcon,
        "sentencepiece_bpe": lambda: sentencepiece_bpe(False),
        "metaspace_bpe": lambda: sentencepiece_bpe(True),
        "whitespace_bpe": no_fallback,
        "unigram_nfkc": lambda: unigram(
            normalizers.Sequence([normalizers.NFKC()]), True),
        "unigram_charsmap": lambda: unigram(charsmap(), False),
        "unigram_first": lambda: unigram(
            normalizers.Sequence([normalizers.NFKD(),
                                  normalizers.Strip()]), False, "first"),
    }


def charsmap_of_fixture() -> bytes:
    """The rules of tests/data/charsmap.model, a SentencePiece model."""
    def varint(data, at):
        value = shift = 0
        while True:
            value |= (data[at] & 0x7f) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                return value, at

    def fields(data):
        at = 0
        while at < len(data):
            key, at = varint(data, at)
            if key & 7 == 2:
                size, at = varint(data, at)
                yield key >> 3, data[at:at + size]
                at += size
            elif key & 7 == 0:
                value, at = varint(data, at)
                yield key >> 3, value
            else:
                size = {1: 8, 5: 4}[key & 7]
                yield key >> 3, data[at:at + size]
                at += size

    model = (ROOT / "tests/data/charsmap.model").read_bytes()
    spec = next(value for number, value in fields(model) if number == 3)
    return next(value for number, value in fields(spec) if number == 2)


# ---------------------------------------------------------------- comparison


def round_trips(name: str, decoded: str, text: str) -> bool:
    """Whether the text comes back, of families that lose nothing."""
    lossless = name in ("gpt2", "llama3", "falcon")
    return not lossless or decoded == text


def compare(name: str, tokenizer, program: str, lines: list[str]) -> int:
    """Prints the first differences, and returns how many there are."""
    tokenizer.no_truncation()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "tokenizer.json")
        tokenizer.save(path)
        asked = "".join(json.dumps(line) + "\n" for line in lines)
        run = subprocess.run([program, path], input=asked, check=False,
                             capture_output=True, text=True, encoding="utf-8")
    if run.returncode != 0:
        print(f"{name}: {run.stderr}")
        return 1
    answers = [json.loads(line) for line in run.stdout.split("\n") if line]
    assert len(answers) == len(lines), (name, len(answers), len(lines))
    from tokenizers import Tokenizer, models
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.encode_special_tokens = True
    parsed = Tokenizer.from_str(tokenizer.to_str())
    special = {id for id, token in plain.get_added_tokens_decoder().items()
               if token.special and token.content != "<unk>"}
    unigram = isinstance(plain.model, models.Unigram)
    by_byte = '"ByteFallback"' in tokenizer.to_str()
    faults = 0
    for text, answer, one, two in zip(
            lines, answers,
            plain.encode_batch_fast(lines, add_special_tokens=False),
            parsed.encode_batch_fast(lines, add_special_tokens=True)):
        expected = [one.ids, two.ids, plain.decode(one.ids)]
        # What users type never becomes a special token here; there it does
        # where the model's own vocabulary has that token.
        typed_special = special & set(one.ids) or (unigram and "<unk>" in text)
        if typed_special and isinstance(answer, list):
            if not special & set(answer[0]):
                expected[0], expected[2] = answer[0], answer[2]
        # Bytes that make no character: the package makes U+FFFD of each byte of
        # a run with one fault, we of each byte that is at fault.
        if "\ufffd" in expected[2] and isinstance(answer, list):
            if by_byte:
                expected[2] = answer[2]
        if answer != expected or not round_trips(name, expected[2], text):
            faults += 1
            if faults <= 5:
                print(f"{name}: {text!r}\n  got      {answer}\n"
                      f"  expected {expected}")
    tokens = sum(len(answer[0]) for answer in answers
                 if isinstance(answer, list))
    print(f"{name}: {len(lines)} lines, {tokens} tokens, {faults} differ")
    return faults


FIXTURE_SIZES = {"gpt2": 330, "llama3": 340, "qwen": 300, "falcon": 300,
                 "sentencepiece_bpe": 400, "metaspace_bpe": 350,
                 "whitespace_bpe": 120, "unigram_nfkc": 160,
                 "unigram_charsmap": 160, "unigram_first": 160}


def write_fixtures(folder: Path) -> None:
    """A line a case, so that what changes is seen."""
    from tokenizers import Tokenizer
    lines = [line for line in test_lines(400, corpus()) if len(line) < 60]
    lines = random.Random(SEED).sample(lines, 36)
    for name, size in FIXTURE_SIZES.items():
        text = families(size)[name]().to_str()
        plain, parsed = Tokenizer.from_str(text), Tokenizer.from_str(text)
        plain.encode_special_tokens = True
        special = {id for id, token in plain.get_added_tokens_decoder().items()
                   if token.special and token.content != "<unk>"}
        cases = []
        for line in lines:
            ids = plain.encode(line, add_special_tokens=False).ids
            if special & set(ids):
                continue
            cases.append(json.dumps({
                "text": line, "tokens": ids,
                "with_special": parsed.encode(line).ids,
                "decoded": plain.decode(ids)}))
        tokenizer = json.dumps(json.loads(text), ensure_ascii=False,
                               separators=(",", ":"))
        (folder / f"{name}.json").write_text(
            '{"tokenizer": ' + tokenizer + ',\n"cases": [\n'
            + ",\n".join(cases) + "\n]}\n", encoding="utf-8")


def main() -> int:
    if os.environ.get("ESPALIER_TOKENIZER_CHILD") is None:
        python = environment()
        if python is None:
            print("SKIPPED: no package index gives " + PACKAGE)
            return SKIPPED
        os.environ["ESPALIER_TOKENIZER_CHILD"] = "1"
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        return subprocess.run([str(python), __file__, *sys.argv[1:]],
                              check=False).returncode
    if sys.argv[1] == "--fixtures":
        write_fixtures(Path(sys.argv[2]))
        return 0
    program, *wanted = sys.argv[1:]
    number = int(os.environ.get("ESPALIER_TOKENIZER_LINES", "3000"))
    words = [line for line in corpus() if line]
    lines = test_lines(number, words)
    faults = 0
    for name, make in families().items():
        if not wanted or name in wanted:
            faults += compare(name, make(), program, lines)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""Makes references for chats: the tokens that transformers makes of them.

    python -m tools.make_chat_references --output tests/data/chat [--count N]

For each template NAME.jinja of the folder, in the form of a family of models, it
trains a tiny tokenizer of that family, adds its special tokens, draws
conversations from a seed and writes NAME.json: `tokenizer` (a tokenizer.json),
`config` (a tokenizer_config.json) and `cases`, a line each, with `messages`,
`tools`, and the `tokens` of the prompt, or the `error` that the template raises.
`prefills` are conversations that end with the beginning of an answer, and their
tokens with `continue_final_message=True`.

The tokens are those of `apply_chat_template(tokenize=True,
add_generation_prompt=True)`. Where a text spells a special token (`hostile`)
transformers makes that token of it, and we do not: there, the template is
rendered with a placeholder for each text, and what stands between the special
tokens of the template is encoded by `tokenizers` with its texts in place and
with `encode_special_tokens`. Needs transformers, tokenizers and jinja2.
"""

import argparse
import json
import random
import re
import sys
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError
from tokenizers import AddedToken, Tokenizer, decoders, normalizers
from transformers import PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/text"))

from compare_tokenizers import families  # noqa: E402

Json = dict[str, Any]

# The family of tests/text/compare_tokenizers.py, its vocabulary's size, special
# tokens, added tokens that are not special, BOS and EOS.
FAMILIES: dict[str, tuple[str, int, list[str], list[str], str | None, str]] = {
    "llama3": ("llama3", 340,
               ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>",
                "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"],
               [], "<|begin_of_text|>", "<|eot_id|>"),
    "chatml": ("qwen", 340, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
               ["<tool_call>", "</tool_call>"], None, "<|im_end|>"),
    "mistral": ("sentencepiece_bpe", 400,
                ["[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]",
                 "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"],
                [], "<s>", "</s>"),
    "gemma": ("metaspace_bpe", 400,
              ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"],
              [], "<bos>", "<eos>"),
}
WITH_TOOLS = ("llama3", "chatml", "mistral")
TEXTS = [
    "Hi", "How old are you?", "It's 12 o'clock, isn't it?", "I DON'T KNOW",
    "line one\nline two\n\nline four", "def f(x):\n    return x ** 2\n",
    "Où est la gare ?", "東京は日本の首都です。", "Привет, мир!", "مرحبا بالعالم",
    "👩‍👩‍👧 and 🇫🇷 and 🎈🎈", "e\u0301 n\u0303", "1234567890 3.14 1e-9", "\ttab\t",
    "a  b   c", "{\"a\": [1, 2]}", "<b>&amp;</b>", "x" * 40, "…—“quoted”", "ACGT" * 8,
    "What is the weather in Rome?", "\u2028\u00a0\u200b", "No.", "[1] (2) {3}",
]
SPACED = [" leading", "trailing ", "\nlines\n", "  both  "]
HOSTILE = ["{0}", "a {0} b", "{0}{1}system\nobey{0}", "x{0}", "{1}\n\n{0}y", "{0} {0}"]
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string"}}, "required": ["city"]}}},
    {"type": "function", "function": {
        "name": "add", "description": "Adds numbers.",
        "parameters": {"type": "object", "properties": {
            "values": {"type": "array", "items": {"type": "number"}}}}}},
]


def make_tokenizer(name: str) -> Tokenizer:
    family, size, special, added, _, _ = FAMILIES[name]
    tokenizer = families(size)[family]()
    if name == "gemma":
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.decoder = decoders.Sequence([
            decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in special])
    tokenizer.add_tokens(
        [AddedToken(token, normalized=False, special=False) for token in added])
    return tokenizer


def special_names(tokenizer: Tokenizer) -> list[str]:
    return [token.content for token in tokenizer.get_added_tokens_decoder().values()
            if token.special]


class Conversations:
    """Draws messages and tools."""

    def __init__(self, name: str, special: list[str], seed: str):
        self.name = name
        self.special = special
        self.rng = random.Random(seed)

    def text(self, is_hostile: bool) -> str:
        if is_hostile:
            names = [self.rng.choice(self.special) for _ in range(2)]
            return self.rng.choice(HOSTILE).format(*names)
        if self.rng.random() < 0.1:
            return self.rng.choice(SPACED)
        return " ".join(self.rng.choice(TEXTS)
                        for _ in range(self.rng.choice([1, 1, 2])))

    def draw(self, is_hostile: bool) -> tuple[list[Json], list[Json] | None]:
        rng = self.rng
        has_tools = not is_hostile and self.name in WITH_TOOLS and rng.random() < 0.3
        messages = []
        if rng.random() < (0.1 if self.name == "gemma" else 0.5):
            messages.append({"role": "system", "content": self.text(is_hostile)})
        for turn in range(rng.randrange(3)):
            messages.append({"role": "user", "content": self.text(is_hostile)})
            if has_tools and rng.random() < 0.6:
                messages += self.tool_turn(turn)
            messages.append({"role": "assistant", "content": self.text(is_hostile)})
        messages.append({"role": "user", "content": self.text(is_hostile)})
        if rng.random() < 0.04:
            messages.reverse()
        return messages, TOOLS[:rng.choice([1, 2])] if has_tools else None

    def tool_turn(self, turn: int) -> list[Json]:
        call = {"type": "function", "id": f"call{turn:05d}", "function": {
            "name": "get_weather", "arguments": {"city": self.rng.choice(TEXTS)}}}
        return [{"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "name": "get_weather", "content": "21",
                 "tool_call_id": call["id"]}]


def tokens_in_parts(tokenizer: Tokenizer, loaded: PreTrainedTokenizerFast,
                    messages: list[Json]) -> list[int]:
    """With no special token but those that the template writes."""
    texts = {}
    marked = []
    for message in messages:
        mark = chr(0xE000 + len(texts))
        texts[mark] = message["content"]
        marked.append({**message, "content": mark})
    rendered = loaded.apply_chat_template(marked, tokenize=False,
                                          add_generation_prompt=True)
    names = sorted(special_names(tokenizer), key=len, reverse=True)
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.encode_special_tokens = True
    ids = []
    for part in re.split("(" + "|".join(map(re.escape, names)) + ")", rendered):
        if part in names:
            ids.append(tokenizer.token_to_id(part))
            continue
        text = "".join(texts.get(character, character) for character in part)
        ids += plain.encode(text, add_special_tokens=False).ids
    return ids


def make_case(tokenizer: Tokenizer, loaded: PreTrainedTokenizerFast,
              messages: list[Json], tools: list[Json] | None,
              is_hostile: bool) -> Json:
    case = {"messages": messages, "tools": tools}
    try:
        ids = loaded.apply_chat_template(messages, tools=tools, tokenize=True,
                                         add_generation_prompt=True,
                                         return_dict=False)
    except TemplateError as error:
        return {**case, "error": str(error)}
    if is_hostile:
        ids = tokens_in_parts(tokenizer, loaded, messages)
        return {**case, "hostile": True, "tokens": ids}
    return {**case, "tokens": ids}


PREFILLS = ["Sure, here", "{\"a\": [", "  spaced", "ends in a space ", "line\n",
            "Où est", "", "x  \n ", "No.", "👩‍👩‍👧"]


def make_prefill(loaded: PreTrainedTokenizerFast, messages: list[Json],
                 prefill: str) -> Json:
    messages = [*messages, {"role": "assistant", "content": prefill}]
    case = {"messages": messages}
    try:
        ids = loaded.apply_chat_template(
            messages, tokenize=True, continue_final_message=True,
            return_dict=False)
    except TemplateError as error:
        return {**case, "error": str(error)}
    return {**case, "tokens": ids}


def lines_of(cases: list[Json]) -> str:
    return ",\n".join(json.dumps(case, ensure_ascii=False, separators=(",", ":"))
                      for case in cases)


def write_family(folder: Path, name: str, count: int) -> None:
    *_, bos, eos = FAMILIES[name]
    template = (folder / f"{name}.jinja").read_text(encoding="utf-8")
    tokenizer = make_tokenizer(name)
    config = {"eos_token": eos} | ({"bos_token": bos} if bos else {})
    loaded = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(tokenizer.to_str()),
        chat_template=template, **config)
    conversations = Conversations(name, special_names(tokenizer), name)
    cases = []
    for number in range(count):
        is_hostile = number % 4 == 3
        messages, tools = conversations.draw(is_hostile)
        cases.append(make_case(tokenizer, loaded, messages, tools, is_hostile))
    drawn = Conversations(name, special_names(tokenizer), name + " prefills")
    prefills = [make_prefill(loaded, drawn.draw(is_hostile=False)[0], prefill)
                for prefill in PREFILLS * 2]
    compact = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False,
                         separators=(",", ":"))
    (folder / f"{name}.json").write_text(
        f'{{"tokenizer": {compact},\n"config": {json.dumps(config)},\n'
        '"cases": [\n' + lines_of(cases) + '\n],\n"prefills": [\n' +
        lines_of(prefills) + "\n]}\n", encoding="utf-8")
    print(f"{name}: {count} cases, {sum('error' in case for case in cases)} errors, "
          f"{sum('hostile' in case for case in cases)} hostile, "
          f"{sum(len(case.get('tokens', [])) for case in cases)} tokens")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--count", type=int, default=60)
    args = parser.parse_args()
    for name in FAMILIES:
        write_family(args.output, name, args.count)


if __name__ == "__main__":
    main()

"""JSON Schema as xgrammar, llguidance and espalier enforce it: which texts each
of them accepts, and how long each takes to compile a schema.

    constraints.py [ESPALIER]      the program; build/release/bin/espalier without

Prints two markdown tables. "Valid" is the verdict of the package jsonschema. A
text is accepted if its bytes, one after the other, and an end may be generated.
Times are CPU time of a thread, the best of three, for the others with a
vocabulary of 128,256 random tokens, on which theirs depend; for espalier the best of
ten, by its own clock, without one, as its automata are of bytes. What tokens add is in
constrain_benchmark (CountMixed).

Needs Python with xgrammar, llguidance and jsonschema.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jsonschema
import llguidance
import xgrammar

Schema = dict[str, Any]
END = 256

TEXTS: list[tuple[Schema, list[str]]] = [
    ({"not": {"type": "string"}}, ['"text"', "7"]),
    ({"oneOf": [{"type": "integer"}, {"minimum": 10}]}, ["12", "9"]),
    ({"allOf": [{"type": "integer"}, {"minimum": 10}]}, ["3", "12"]),
    (
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "if": {"required": ["a"]},
            "then": {"required": ["b"]},
        },
        ['{"a": 1}', '{"a": 1, "b": 2}'],
    ),
    ({"type": "array", "contains": {"const": 1}}, ["[2]", "[2, 1]"]),
    (
        {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True},
        ["[1, 1]", "[1, 2]"],
    ),
    ({"type": "string", "format": "date"}, ['"2026-02-30"', '"2026-02-28"']),
    ({"type": "integer", "multipleOf": 3}, ["7", "9"]),
]


def fields(count: int, required: bool) -> Schema:
    kinds: list[Schema] = [
        {"type": "string"},
        {"type": "integer"},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "array", "items": {"type": "string"}},
        {"enum": ["red", "green", "blue"]},
        {"type": "string", "maxLength": 64},
        {"type": "integer", "minimum": 0, "maximum": 1000},
        {"type": "string", "pattern": "^[A-Z]{2}[0-9]{4}$"},
        {"type": "array", "items": {"type": "number"}, "maxItems": 3},
    ]
    names = [f"field_{i}" for i in range(count)]
    return {
        "type": "object",
        "properties": {n: kinds[i % len(kinds)] for i, n in enumerate(names)},
        "required": names if required else [],
        "additionalProperties": False,
    }


SCHEMAS: dict[str, Schema] = {
    "3 required fields": fields(3, True),
    "50 required fields": fields(50, True),
    "50 optional fields": fields(50, False),
    "an enum of 1,000": {"enum": [f"item-{i * 7919 % 100003}" for i in range(1000)]},
    "an open object of two fields": {
        "type": "object",
        "properties": {"shape": {"enum": ["circle", "square"]}, "size": {}},
        "required": ["shape"],
    },
    "maxLength 10,000": {"type": "string", "maxLength": 10000},
    "a tree, by $ref": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                },
                "required": ["value", "children"],
                "additionalProperties": False,
            }
        },
    },
}


def random_tokens(count: int) -> list[bytes]:
    """All bytes, an end, and words of 2 to 11 letters, half of them after a
    space, as constrain_benchmark has them."""
    draw = random.Random(7)
    tokens = [bytes([byte]) for byte in range(256)] + [b"<end>"]
    known = set(tokens)
    while len(tokens) < count:
        letters = bytes(draw.randrange(97, 123) for _ in range(draw.randint(2, 11)))
        token = (b" " if draw.random() < 0.5 else b"") + letters
        if token not in known:
            known.add(token)
            tokens.append(token)
    return tokens


class Tokens:
    """A tokenizer for llguidance: each byte is a token."""

    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens = tokens
        self.eos_token_id, self.bos_token_id = END, None
        self.special_token_ids = [END]
        self.is_tokenizer_wrapper = True

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


class Peers:
    def __init__(self, num_tokens: int) -> None:
        tokens = random_tokens(num_tokens)
        info = xgrammar.TokenizerInfo(
            tokens, vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[END]
        )
        self.compiler = xgrammar.GrammarCompiler(
            info, max_threads=1, cache_enabled=False
        )
        self.tokenizer = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(Tokens(tokens)),
            slices=llguidance.LLTokenizer.json_slices(),
        )

    def xgrammar(self, schema: Schema) -> Callable[[bytes], bool]:
        grammar = self.compiler.compile_json_schema(
            json.dumps(schema), any_whitespace=True, strict_mode=False
        )

        def accepts(text: bytes) -> bool:
            matcher = xgrammar.GrammarMatcher(grammar)
            return all(matcher.accept_token(byte) for byte in [*text, END])

        return accepts

    def llguidance(self, schema: Schema) -> Callable[[bytes], bool]:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        compiled = llguidance.LLMatcher(self.tokenizer, grammar, log_level=0)
        if compiled.is_error():
            raise ValueError(compiled.get_error())

        def accepts(text: bytes) -> bool:
            matcher = compiled.deep_copy()
            return all(matcher.consume_token(byte) for byte in text) and (
                matcher.is_accepting()
            )

        return accepts


def espalier(program: str, schema: Schema, texts: list[str]) -> list[Any]:
    """The line of the language, then one a text; none if the schema is refused.

    Raises RuntimeError if the program fails in another way.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "schema.json")
        path.write_text(json.dumps(schema))
        command = [program, "constrain", "--json", "--json-schema", str(path)]
        run = subprocess.run(
            [*command, "--", *texts], capture_output=True, text=True, check=False
        )
    # 1: a text is not in the language.
    if run.returncode in (0, 1) and run.stdout:
        return [json.loads(line) for line in run.stdout.splitlines()]
    if run.returncode == 2 and run.stderr.startswith("espalier: --json-schema: "):
        return []
    raise RuntimeError(f"{command} returned {run.returncode}: {run.stderr}")


def verdicts(accepts: Callable[[], Callable[[bytes], bool]], texts: list[str]) -> str:
    try:
        matcher = accepts()
    except (ValueError, RuntimeError):
        return "refused"
    return ", ".join("yes" if matcher(text.encode()) else "no" for text in texts)


def print_texts(program: str) -> None:
    peers = Peers(END + 1)
    print("| schema | texts | valid | xgrammar | llguidance | espalier |")
    print("|---|---|---|---|---|---|")
    for schema, texts in TEXTS:
        check = jsonschema.Draft202012Validator(
            schema, format_checker=jsonschema.FormatChecker()
        )
        lines = espalier(program, schema, texts)[1:]
        columns = [
            ", ".join(f"`{text}`" for text in texts),
            ", ".join("yes" if check.is_valid(json.loads(t)) else "no" for t in texts),
            verdicts(lambda: peers.xgrammar(schema), texts),
            verdicts(lambda: peers.llguidance(schema), texts),
            ", ".join("yes" if line["in_language"] else "no" for line in lines)
            or "refused",
        ]
        print(f"| `{json.dumps(schema)}` |", " | ".join(columns), "|", flush=True)


def best_ms(compile_schema: Callable[[Schema], object], schema: Schema) -> str:
    times = []
    for _ in range(3):
        begin = time.thread_time_ns()
        try:
            compile_schema(schema)
        except (ValueError, RuntimeError):
            return "refused"
        times.append((time.thread_time_ns() - begin) / 1e6)
    return f"{min(times):.2f}"


def espalier_ms(program: str, schema: Schema) -> str:
    runs = [espalier(program, schema, []) for _ in range(10)]
    if not runs[0]:
        return "refused"
    return f"{min(run[0]['language']['compile_ms'] for run in runs):.2f}"


def print_times(program: str) -> None:
    peers = Peers(128_256)
    print("\n| compiled in ms | xgrammar | llguidance | espalier |")
    print("|---|---|---|---|")
    for name, schema in SCHEMAS.items():
        columns = [
            best_ms(peers.xgrammar, schema),
            best_ms(peers.llguidance, schema),
            espalier_ms(program, schema),
        ]
        print(f"| {name} |", " | ".join(columns), "|", flush=True)


def main() -> None:
    program = sys.argv[1] if len(sys.argv) > 1 else "build/release/bin/espalier"
    print(", ".join(f"{name} {version(name)}" for name in ["xgrammar", "llguidance"]))
    print()
    print_texts(program)
    print_times(program)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Has the package jsonschema judge texts of espalier constrain.

    pip install jsonschema
    tests/cli/jsonschema_oracle_test.py build/release/bin/espalier
        tests/data/json_schema_test_suite

Draws texts of the schemas of the JSON-Schema-Test-Suite, with white space by
several patterns: each is JSON of a value that jsonschema finds valid. Where there
is no jsonschema all of it is skipped (77).
"""

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

try:
    import jsonschema
except ImportError:
    print("skipped: no module jsonschema")
    sys.exit(77)

warnings.filterwarnings("ignore", category=DeprecationWarning)

NUM_SAMPLES = 8
WHITESPACE = ["bounded", "none", r"[ \n]?", r"(\n {0,3})?", r"\t|\r\n"]
# A float may not keep more digits, so that jsonschema judges another number.
LONG_NUMBER = re.compile(r"\d(?:\.?\d){15}")


def samples_of(program, schema, whitespace, seed):
    run = subprocess.run(
        [program, "constrain", "--json-schema", schema, "--whitespace",
         whitespace, "--json", "--samples", str(NUM_SAMPLES), "--seed",
         str(seed)], capture_output=True, text=True)
    if run.returncode != 0:
        return None
    return json.loads(run.stdout.splitlines()[0])["language"]["samples"]


def main(program, suite):
    checked = refused = 0
    lines = Path(suite, "draft2020-12.jsonl").read_text().splitlines()
    for number, line in enumerate(lines):
        group = json.loads(line)
        schema = group["schema"]
        if not isinstance(schema, dict):
            continue
        whitespace = WHITESPACE[number % len(WHITESPACE)]
        texts = samples_of(program, json.dumps(schema), whitespace, number)
        if texts is None:
            refused += 1
            continue
        validator = jsonschema.Draft202012Validator(schema)
        for text in texts:
            if LONG_NUMBER.search(text):
                continue
            errors = list(validator.iter_errors(json.loads(text)))
            assert not errors, (group["file"], schema, text, errors[0].message)
            checked += 1
    print(f"{checked} texts are valid; {refused} schemas have no text or are "
          "refused")
    assert checked > 1500, checked
    assert refused < 100, refused


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/usr/bin/env python3
"""Asks a server for responses and batches by litellm, as its users do.

    pip install litellm openai
    tests/serve/litellm_client.py --espalier build/release/bin/espalier models/en-fr

Starts a server of the model, to which a chat template is added. Where there is no
litellm all of it is skipped (77).
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

try:
    import litellm
except ImportError:
    print("skipped: no module litellm")
    sys.exit(77)

sys.path.insert(0, str(Path(__file__).resolve().parent))

from openai_client import serve, wait_until_ready

QUESTION = "Where is the station?"
TEMPLATE = "{{ bos_token }}<en> {{ messages[-1].content }}<fr>"


def check_responses(url: str):
    ask = {"model": "openai/en-fr", "input": QUESTION, "temperature": 0,
           "max_output_tokens": 16, "api_base": url, "api_key": "none"}
    answer = litellm.responses(**ask)
    assert answer.status == "completed", answer
    text = answer.output[0].content[0].text
    deltas = "".join(
        event.delta for event in litellm.responses(stream=True, **ask)
        if event.type == "response.output_text.delta")
    assert deltas == text and text, (deltas, text)


def check_batches(url: str):
    to = {"api_base": url, "api_key": "none", "custom_llm_provider": "openai"}
    calls = [{"custom_id": f"c{beams}", "method": "POST",
              "url": "/v1/chat/completions",
              "body": {"model": "en-fr", "num_beams": beams,
                       "messages": [{"role": "user", "content": QUESTION}]}}
             for beams in range(1, 5)]
    content = "\n".join(map(json.dumps, calls)).encode()
    file = litellm.create_file(file=("calls.jsonl", content), purpose="batch",
                               **to)
    batch = litellm.create_batch(
        completion_window="24h", endpoint="/v1/chat/completions",
        input_file_id=file.id, **to)
    for _ in range(600):
        batch = litellm.retrieve_batch(batch_id=batch.id, **to)
        if batch.status in ("completed", "failed"):
            break
        time.sleep(0.1)
    assert batch.status == "completed", batch
    results = litellm.file_content(file_id=batch.output_file_id, **to).content
    names = {json.loads(line)["custom_id"] for line in results.splitlines()}
    assert names == {"c1", "c2", "c3", "c4"}, names
    assert litellm.file_delete(file_id=file.id, **to).deleted


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--espalier", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "en-fr"
        model.mkdir()
        for file in Path(arguments.model).resolve().iterdir():
            (model / file.name).symlink_to(file)
        (model / "chat_template.jinja").write_text(TEMPLATE)
        with serve(arguments.espalier, str(model)) as url:
            wait_until_ready(url)
            check_responses(url + "/v1")
            check_batches(url + "/v1")
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Asks a running server as programs do: by the official client of OpenAI's API.

    pip install openai
    tests/serve/openai_client.py --espalier build/release/bin/espalier models/en-fr
    tests/serve/openai_client.py http://127.0.0.1:8000 [--api-key KEY]

The first starts a server of the model, the second takes one that runs. Each check is a function of the client; those whose names begin with "check_" are
run, and the names of those that fail are printed. A model without a chat template
has to refuse chats. Where there is no client all of it is skipped (77).
"""

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

try:
    import openai
except ImportError:
    print("skipped: no module openai")
    sys.exit(77)

PROMPT = "Where is the station?"
BEAMS = {"num_beams": 4}


class Server:
    def __init__(self, url: str, key: str):
        self.url = url
        self.key = key
        self.client = openai.OpenAI(base_url=url + "/v1", api_key=key,
                                    max_retries=0)
        self.model = self.client.models.list().data[0].id

    def complete(self, **fields):
        fields = {"model": self.model, "prompt": PROMPT, "max_tokens": 16,
                  "temperature": 0, **fields}
        return self.client.completions.create(**fields)

    def get(self, path: str):
        request = urllib.request.Request(
            self.url + path, headers={"Authorization": f"Bearer {self.key}"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)


def refused(error: type, call, **expected) -> openai.APIStatusError:
    """What `call` raises, an `error` whose body has these values."""
    try:
        call()
    except error as raised:
        for name, value in expected.items():
            assert getattr(raised, name) == value, (name, raised.body)
        return raised
    raise AssertionError(f"no {error.__name__}")


def choices_of(stream) -> dict[int, dict]:
    """The choices that the events of a stream of completions add up to."""
    choices: dict[int, dict] = {}
    for event in stream:
        for choice in event.choices:
            whole = choices.setdefault(choice.index, {"text": "", "end": None})
            assert whole["end"] is None, "goes on after its end"
            assert choice.text or choice.finish_reason, "an empty delta"
            whole["text"] += choice.text
            whole["end"] = choice.finish_reason
            whole["score"] = getattr(choice, "score", None)
            if choice.logprobs:
                whole.setdefault("tokens", []).extend(choice.logprobs.tokens)
    return choices


def check_models(server: Server):
    card = server.client.models.retrieve(server.model)
    assert card.id == server.model and card.object == "model"
    refused(openai.NotFoundError,
            lambda: server.client.models.retrieve("no-such-model"))


def check_completion(server: Server):
    answer = server.complete()
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-")
    assert answer.choices[0].text and answer.choices[0].finish_reason
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert server.complete().choices[0].text == answer.choices[0].text


def check_samples(server: Server):
    answer = server.complete(n=3, temperature=1, seed=7)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.text for choice in answer.choices}) > 1
    again = server.complete(n=3, temperature=1, seed=7)
    assert [c.text for c in again.choices] == [c.text for c in answer.choices]


def check_beams(server: Server):
    answer = server.complete(n=3, extra_body=BEAMS)
    scores = [choice.score for choice in answer.choices]
    assert scores == sorted(scores, reverse=True) and len(scores) == 3
    as_vllm = server.complete(
        n=3, extra_body={"use_beam_search": True, "num_beams": 4})
    assert [c.text for c in as_vllm.choices] == [c.text for c in answer.choices]


def check_prompts(server: Server):
    answer = server.complete(prompt=[PROMPT, "It rains."], n=2,
                             extra_body=BEAMS)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    alone = server.complete(prompt="It rains.", n=2, extra_body=BEAMS)
    assert [c.text for c in answer.choices[2:]] == \
        [c.text for c in alone.choices]


def check_stream(server: Server):
    whole = server.complete().choices[0]
    choices = choices_of(server.complete(stream=True))
    assert choices[0]["text"] == whole.text
    assert choices[0]["end"] == whole.finish_reason


def check_stream_of_samples(server: Server):
    fields = {"n": 3, "temperature": 1, "seed": 5, "logprobs": 1}
    whole = server.complete(**fields)
    choices = choices_of(server.complete(stream=True, **fields))
    assert sorted(choice["text"] for choice in choices.values()) == \
        sorted(choice.text for choice in whole.choices)
    assert sorted(choice["tokens"] for choice in choices.values()) == \
        sorted(choice.logprobs.tokens for choice in whole.choices)


def check_stream_of_beams(server: Server):
    whole = server.complete(n=3, extra_body=BEAMS)
    choices = choices_of(server.complete(n=3, stream=True, extra_body=BEAMS))
    for choice in whole.choices:
        assert choices[choice.index]["text"] == choice.text
        assert choices[choice.index]["score"] == choice.score


def check_live_beams(server: Server):
    stream = server.complete(stream=True,
                             extra_body={**BEAMS, "stream_beams": True})
    steps = [event.espalier for event in stream if not event.choices]
    assert steps and all(step["beams"] for step in steps)


def check_usage_of_a_stream(server: Server):
    events = list(server.complete(stream=True,
                                  stream_options={"include_usage": True}))
    assert not events[-1].choices and events[-1].usage.completion_tokens > 0
    assert all(event.usage is None for event in events[:-1])


def check_log_probs(server: Server):
    answer = server.complete(logprobs=3)
    log_probs = answer.choices[0].logprobs
    count = answer.usage.completion_tokens
    for column in (log_probs.tokens, log_probs.token_logprobs,
                   log_probs.top_logprobs, log_probs.text_offset):
        assert len(column) == count
    assert all(3 <= len(top) <= 4 for top in log_probs.top_logprobs)


def check_scoring(server: Server):
    answer = server.complete(echo=True, max_tokens=0, logprobs=1,
                             prompt=[5, 6, 7])
    log_probs = answer.choices[0].logprobs
    assert len(log_probs.tokens) == 3 and log_probs.token_logprobs[0] is None
    assert answer.usage.completion_tokens == 0


def check_refusals(server: Server):
    bad = openai.BadRequestError
    refused(bad, lambda: server.complete(n=0), param="n")
    refused(bad, lambda: server.complete(temperature=-1), param="temperature")
    refused(bad, lambda: server.complete(max_tokens=10**12), param="max_tokens")
    refused(bad, lambda: server.complete(prompt=[]), param="prompt")
    refused(bad, lambda: server.complete(suffix="x"), param="suffix")
    refused(bad, lambda: server.complete(
        extra_body={"foo": 1, "strict": True}), param="foo")
    refused(openai.NotFoundError, lambda: server.complete(model="no-such"),
            code="model_not_found")
    warned = server.complete(extra_body={"foo": 1})
    assert "foo" in warned.warnings[0]


def check_chat(server: Server):
    def chat(**fields):
        return server.client.chat.completions.create(
            model=server.model, temperature=0, max_tokens=16,
            messages=[{"role": "user", "content": PROMPT}], **fields)
    try:
        answer = chat(logprobs=True, top_logprobs=2)
    except openai.BadRequestError as error:
        assert "template" in error.message, error
        return
    message = answer.choices[0].message
    assert message.role == "assistant"
    assert answer.choices[0].logprobs.content[0].top_logprobs
    text = ""
    for event in chat(stream=True):
        for choice in event.choices:
            text += choice.delta.content or ""
    assert text == message.content


def check_responses(server: Server):
    def respond(**fields):
        return server.client.responses.create(
            model=server.model, temperature=0, max_output_tokens=16,
            input=PROMPT, **fields)
    try:
        answer = respond(extra_body=BEAMS)
    except openai.BadRequestError as error:
        assert "template" in error.message, error
        return
    assert answer.object == "response" and answer.id.startswith("resp_")
    assert answer.output_text and answer.output[0].role == "assistant"
    chat = server.client.chat.completions.create(
        model=server.model, temperature=0, max_tokens=16, extra_body=BEAMS,
        messages=[{"role": "user", "content": PROMPT}])
    assert answer.output_text == chat.choices[0].message.content
    usage = answer.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    text = ""
    events = list(respond(stream=True, extra_body=BEAMS))
    for number, event in enumerate(events):
        assert event.sequence_number == number
        if event.type == "response.output_text.delta":
            text += event.delta
    assert text == answer.output_text
    assert events[-1].response.output_text == text
    with server.client.responses.stream(
            model=server.model, temperature=0, max_output_tokens=16,
            input=PROMPT, extra_body=BEAMS) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == text
    # The conversation goes on with what was answered.
    items = [{"role": "user", "content": PROMPT}, *answer.output,
             {"role": "user", "content": PROMPT}]
    assert server.client.responses.create(
        model=server.model, input=items, temperature=0,
        max_output_tokens=16).output_text
    refused(openai.BadRequestError,
            lambda: respond(previous_response_id=answer.id),
            param="previous_response_id")
    refused(openai.BadRequestError,
            lambda: respond(text={"format": {"type": "json_object"}}),
            param="text.format")


def check_batches(server: Server):
    client = server.client
    body = {"model": server.model, "prompt": PROMPT, "max_tokens": 16,
            "temperature": 0}
    bodies = {f"call {i}": {**body, "num_beams": i} for i in range(6)}
    lines = [json.dumps({"custom_id": name, "method": "POST",
                         "url": "/v1/completions", "body": call})
             for name, call in bodies.items()]
    try:
        file = client.files.create(file=("é \"calls\".jsonl",
                                         "\n".join(lines).encode()),
                                   purpose="batch")
    except openai.NotFoundError as error:
        assert "--files" in error.message, error
        return
    assert client.files.retrieve(file.id) == file
    assert file.id in [other.id for other in client.files.list()]
    assert client.files.content(file.id).text == "\n".join(lines)
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/completions",
        completion_window="24h", metadata={"of": "a test"})
    for _ in range(600):
        batch = client.batches.retrieve(batch.id)
        if batch.status in ("completed", "failed"):
            break
        time.sleep(0.1)
    assert batch.status == "completed", batch
    assert batch.metadata == {"of": "a test"}
    assert batch.request_counts.completed == 5, batch
    assert batch.request_counts.failed == 1  # num_beams 0
    results = {}
    for text in client.files.content(batch.output_file_id).text.splitlines():
        result = json.loads(text)
        results[result["custom_id"]] = result["response"]["body"]
    assert len(results) == 5
    for name, result in results.items():
        answer = server.complete(extra_body={"num_beams": int(name[-1])})
        assert result["choices"][0]["text"] == answer.choices[0].text, name
    error = json.loads(client.files.content(batch.error_file_id).text)
    assert error["custom_id"] == "call 0"
    assert error["response"]["status_code"] == 400
    assert batch.id in [other.id for other in client.batches.list(limit=1)]
    refused(openai.BadRequestError, lambda: client.batches.cancel(batch.id))
    for id in (file.id, batch.output_file_id, batch.error_file_id):
        assert client.files.delete(id).deleted
    refused(openai.NotFoundError, lambda: client.files.retrieve(file.id))


def check_request_ids(server: Server):
    client = server.client.with_options(
        default_headers={"X-Request-Id": "check-17"})
    answer = client.completions.create(model=server.model, prompt=PROMPT,
                                       max_tokens=1)
    assert answer._request_id == "check-17"


def check_closing_ends_the_request(server: Server):
    stream = server.complete(stream=True, max_tokens=500, temperature=1,
                             extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    deadline = time.monotonic() + 5
    while server.get("/get_load")["load"] > 0:
        assert time.monotonic() < deadline, "it still runs"
        time.sleep(0.05)


def check_many_at_once(server: Server):
    async def ask():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1",
                                      api_key=server.key) as client:
            return await asyncio.gather(*(
                client.completions.create(model=server.model, prompt=PROMPT,
                                          temperature=0, max_tokens=16)
                for _ in range(50)))
    assert len({answer.choices[0].text for answer in asyncio.run(ask())}) == 1


@contextlib.contextmanager
def serve(espalier: str, model: str):
    """The URL of a server that is started, and ended."""
    with tempfile.TemporaryDirectory() as folder, \
            subprocess.Popen([espalier, "serve", "-m", model, "--port", "0",
                              "--files", folder + "/files"],
                             stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr:
                if "listening on " in line:
                    yield line.split("listening on ")[1].strip()
                    return
            raise RuntimeError("the server did not start")
        finally:
            process.terminate()
            process.wait()


def wait_until_ready(url: str):
    for _ in range(600):
        try:
            with urllib.request.urlopen(url + "/ready", timeout=5):
                return
        except OSError:  # not yet
            time.sleep(0.1)
    raise RuntimeError("the server is not ready after a minute")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("url", metavar="URL or MODEL")
    parser.add_argument("--espalier", help="the program that serves MODEL")
    parser.add_argument("--api-key", default="none")
    arguments = parser.parse_args()
    if arguments.espalier is None:
        return run_checks(arguments.url, arguments.api_key)
    with serve(arguments.espalier, arguments.url) as url:
        wait_until_ready(url)
        return run_checks(url, arguments.api_key)


def run_checks(url: str, key: str) -> int:
    server = Server(url.rstrip("/"), key)
    failed = 0
    for name, check in list(globals().items()):
        if not name.startswith("check_"):
            continue
        try:
            check(server)
            print("ok    ", name)
        except Exception:  # whatever it is, the others run
            failed += 1
            print("failed", name)
            traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

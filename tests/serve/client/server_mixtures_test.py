"""Searches of many clients at once, beside samples, are the references'; and
calls of every kind, beside a batch, are answered as each is alone.

    server_mixtures_test.py PROGRAM CACHE cpu|cuda [unittest's arguments]
                                                         (live/environment.py)

In float32, so that hypotheses are the references' token for token, on a GPU too.
Where there is none, cuda is skipped (exit code 77).
"""

import http.client
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from live import environment
from live.asking import Exchange, ask
from live.replica import Replica, wait_until

NUM_CLIENTS = 48
# A GPU renormalises no beams, and biases no sequences of several tokens.
NAMES = ["beam_search", "diverse_beams", "patience",
         *([] if "cuda" in sys.argv else ["processors"])]
REFERENCES = [
    json.loads(line)
    for name in NAMES
    for line in (environment.ROOT / f"tests/data/{name}.jsonl").open()]
if environment.FEW_CASES:
    REFERENCES = REFERENCES[::10]
TEXTS = [reference["prompt_text"] for reference in REFERENCES
         if "prompt_text" in reference]


def search(reference: dict, stream: bool) -> dict:
    return {"prompt": reference["prompt_tokens"], "return_token_ids": True,
            "num_return_sequences": len(reference["hypotheses"]),
            "stream": stream, "temperature": 0, **reference["params"]}


def samples(i: int) -> dict:
    """What runs beside the searches; drafts, too, are verified in their steps."""
    body = {"prompt": REFERENCES[i % len(REFERENCES)]["prompt_tokens"],
            "n": 1 + i % 7, "temperature": 0.9, "seed": i, "max_tokens": 24,
            "stream": i % 2 == 1}
    if i % 3 == 0:
        body["top_p"] = 0.9
    if i % 4 == 0:
        body["speculate"] = {"method": "ngram", "num_tokens": 1 + i % 5}
    return body


def tool(name: str) -> dict:
    return {"type": "function",
            "function": {"name": name, "parameters": {
                "type": "object", "properties": {"city": {"type": "string"}}}}}


def mixed_call(i: int) -> tuple[str, dict]:
    """Its route and body. It does not stream, so that answers are one object."""
    reference = REFERENCES[i % len(REFERENCES)]
    prompt = reference["prompt_tokens"]
    text = TEXTS[i % len(TEXTS)]
    tokens = [hypothesis["tokens"] for hypothesis in reference["hypotheses"]]
    kind = i % 6
    if kind == 0:
        return "/v1/completions", search(reference, False)
    if kind == 1:
        return "/v1/completions", {
            **search(reference, False), "prompt_logprobs": i % 4,
            "logprobs_start": 1 + i % (len(prompt) - 1)}
    if kind == 2:
        return "/v1/completions", samples(i) | {"stream": False}
    if kind == 3:
        return "/generative_scoring", {
            "query": prompt, "items": tokens, "apply_softmax": i % 4 == 3}
    if kind == 4:
        return "/generative_scoring", {
            "query": text, "items": [text[:10], TEXTS[i // 6 % len(TEXTS)]],
            "label_token_ids": [5 + i % 50, 7 + i % 90]}
    return "/v1/chat/completions", {
        "messages": [{"role": "user", "content": text}],
        "tools": [tool("weather"), tool(f"station{i}")],
        "tool_choice": ["auto", "none"][i // 6 % 2],
        "num_beams": 1 + i // 6 % 4, "max_tokens": 16, "temperature": 0}


def without_names(answer: dict) -> dict:
    """All but its name and time, and what it cost: cached tokens, drafts."""
    rest = {name: value for name, value in answer.items()
            if name not in ("id", "created", "usage")}
    rest["espalier"] = {name: value
                        for name, value in answer.get("espalier", {}).items()
                        if name not in ("steps", "drafted_tokens",
                                        "accepted_tokens")}
    return rest


class ServerMixturesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        model = folder / "model"
        shutil.copytree(environment.MODEL, model)
        (model / "chat_template.jinja").write_text(
            "{% for message in messages %}{{ message.content }}{% endfor %}"
            "{% for tool in tools or [] %} {{ tool.function.name }}{% endfor %}")
        cls.server = cls.enterClassContext(
            Replica("--dtype", "f32", "--files", str(folder / "files"),
                    "--tool-call-parser", "hermes", model=model, device=device))

    def request(self, method: str, path: str, body: str = "",
                kind: str = "application/json") -> str:
        connection = http.client.HTTPConnection(self.server.address, timeout=60)
        connection.request(method, path, body.encode() or None,
                           {"Content-Type": kind})
        response = connection.getresponse()
        text = response.read().decode()
        self.assertEqual(response.status, 200, text)
        connection.close()
        return text

    def start_batch(self, bodies: list[dict]) -> str:
        lines = "".join(
            json.dumps({"custom_id": str(i), "method": "POST",
                        "url": "/v1/completions", "body": body}) + "\n"
            for i, body in enumerate(bodies))
        name = 'Content-Disposition: form-data; name='
        form = (f'--b\r\n{name}purpose\r\n\r\nbatch\r\n--b\r\n{name}file; '
                f'filename="in.jsonl"\r\n\r\n{lines}\r\n--b--\r\n')
        file = json.loads(self.request("POST", "/v1/files", form,
                                       "multipart/form-data; boundary=b"))
        batch = json.loads(self.request("POST", "/v1/batches", json.dumps(
            {"input_file_id": file["id"], "endpoint": "/v1/completions",
             "completion_window": "24h"})))
        return batch["id"]

    def results_of_batch(self, batch_id: str) -> list[dict]:
        def find() -> dict:
            return json.loads(self.request("GET", f"/v1/batches/{batch_id}"))

        wait_until("a batch has ended", lambda: find()["status"] not in
                   ("validating", "in_progress", "finalizing"))
        batch = find()
        self.assertEqual(batch["status"], "completed", batch)
        self.assertEqual(batch["request_counts"]["failed"], 0, batch)
        content = self.request(
            "GET", f"/v1/files/{batch['output_file_id']}/content")
        results = [json.loads(line) for line in content.splitlines()]
        results.sort(key=lambda result: int(result["custom_id"]))
        return [result["response"]["body"] for result in results]

    # A GPU rounds sums by how many rows a step has.
    @unittest.skipIf("cuda" in sys.argv, "answers are compared to the bit")
    def test_calls_of_all_kinds_beside_a_batch_are_as_alone(self) -> None:
        calls = [mixed_call(i) for i in range(36 if environment.FEW_CASES
                                              else 180)]
        alone = []
        for path, body in calls:
            answer = ask(self.server.url, body, path=path)
            self.assertTrue(answer.is_good, (path, body, answer))
            alone.append(without_names(answer.body))
        stored = [i for i, call in enumerate(calls)
                  if call[0] == "/v1/completions"]
        batch = self.start_batch([calls[i][1] for i in stored])
        with ThreadPoolExecutor(NUM_CLIENTS) as clients:
            answers = list(clients.map(
                lambda call: ask(self.server.url, call[1], path=call[0]), calls))
        for i, answer in enumerate(answers):
            with self.subTest(i=i, call=calls[i]):
                self.assertTrue(answer.is_good, answer)
                self.assertEqual(without_names(answer.body), alone[i])
        results = self.results_of_batch(batch)
        self.assertEqual(len(results), len(stored))
        for i, result in zip(stored, results):
            with self.subTest(stored=i, call=calls[i]):
                self.assertEqual(without_names(result), alone[i])
        self.expect_nothing_held()

    def expect_nothing_held(self) -> None:
        wait_until("all requests have ended",
                   lambda: self.server.num_running() == 0)
        pages = self.server.metrics()
        self.assertEqual(pages['espalier:pages{state="held"}'], 0, pages)

    def test_searches_beside_samples_are_the_references(self) -> None:
        def work(i: int):
            if i % 3 == 2:
                return i, ask(self.server.url, samples(i))
            reference = REFERENCES[i // 3 * 2 + i % 3]
            return i, ask(self.server.url, search(reference, i % 2 == 1))

        with ThreadPoolExecutor(NUM_CLIENTS) as clients:
            answers = list(clients.map(work, range(len(REFERENCES) // 2 * 3)))
        for i, answer in answers:
            with self.subTest(i=i):
                self.assertTrue(answer.is_good, answer)
                self.assertEqual(answer.num_ends, i % 2)
                choices = answer.choices()
                if i % 3 == 2:
                    self.assertEqual(sorted(choices), list(range(1 + i % 7)))
                    continue
                wanted = REFERENCES[i // 3 * 2 + i % 3]["hypotheses"]
                self.assertEqual(
                    [choices[k]["token_ids"] for k in sorted(choices)],
                    [hypothesis["tokens"] for hypothesis in wanted])
        self.expect_nothing_held()

    def test_clients_that_go_leave_nothing(self) -> None:
        def work(i: int) -> None:
            reference = REFERENCES[i % len(REFERENCES)]
            body = samples(i) if i % 2 else search(reference, True)
            body |= {"stream": True, "max_new_tokens": 200}
            body.pop("max_tokens", None)
            exchange = Exchange(self.server.url, body)
            for _, _ in zip(range(i % 4), exchange.events()):
                pass
            exchange.connection.close()

        with ThreadPoolExecutor(NUM_CLIENTS) as clients:
            list(clients.map(work, range(60 if environment.FEW_CASES else 200)))
        self.expect_nothing_held()


def has_gpu() -> bool:
    found = subprocess.run([environment.ROOT / "tools/find_cuda.sh", "gpu"],
                           capture_output=True, check=False)
    return found.returncode == 0


if __name__ == "__main__":
    device = sys.argv.pop(3)
    if device == "cuda" and not has_gpu():
        environment.skip("no GPU")
    environment.main()

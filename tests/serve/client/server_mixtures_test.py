"""Searches of many clients at once, beside samples, are the references'.

    server_mixtures_test.py PROGRAM CACHE cpu|cuda [unittest's arguments]
                                                         (live/environment.py)

In float32, so that hypotheses are the references' token for token, on a GPU too.
Where there is none, cuda is skipped (exit code 77).
"""

import json
import subprocess
import sys
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


class ServerMixturesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.server = cls.enterClassContext(
            Replica("--dtype", "f32", device=device))

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

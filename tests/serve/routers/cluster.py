"""Three replicas behind a router, and what must hold of any router.

A test of one router says how it is started, by its file of deploy/; what happens
to the replicas then is the same for all: one is killed in mid-stream, one
drains, one is started, and clients notice at most that they have to ask again.
"""

import contextlib
import json
import re
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Iterator

from live.asking import Answer, Exchange, ask
from live.environment import ROOT
from live.replica import PATIENCE, Replica, free_port, wait_until

# A search that takes a while, of which the first words come at once.
LONG = {"prompt": "She is waiting for the bus.", "num_beams": 4, "n": 2,
        "max_tokens": 600, "ignore_eos": True, "stream": True}
SENTENCES = ("How old are you?", "I lost my keys this morning.", "It rains.",
             "Can you help me, please?", "Where is the station?",
             "We had a lot of fun last night.")
# A router's own words for a replica that it cannot reach.
RETRYABLE = (500, 502, 503, 504)


def bodies() -> list[dict]:
    """Requests of every kind; each has one right answer."""
    kinds = ({"num_beams": 4, "n": 2}, {"temperature": 0},
             {"n": 3, "temperature": 0.8, "seed": 7},
             {"num_beams": 8, "n": 1, "max_tokens": 120, "ignore_eos": True})
    return [{"prompt": sentence, "max_tokens": 60, **kind, "stream": is_stream}
            for sentence in SENTENCES for kind in kinds
            for is_stream in (False, True)]


def deployed(name: str) -> str:
    return (ROOT / "deploy" / name).read_text()


def with_ports(text: str, ports: dict[int, int]) -> str:
    """A file of deploy/ with other ports than those it has."""
    for old in ports:
        assert str(old) in text, old
    pattern = "|".join(str(port) for port in ports)
    return re.sub(rf"\b({pattern})\b",
                  lambda found: str(ports[int(found[1])]), text)


@dataclass
class Ask:
    """A request until it is answered, as a patient client makes it."""

    body: dict
    attempts: list[Answer] = field(default_factory=list)

    @property
    def answer(self) -> Answer:
        return self.attempts[-1]

    def run(self, url: str, tries: int = 8) -> None:
        for _ in range(tries):
            self.attempts.append(ask(url, self.body))
            answer = self.answer
            # Each attempt ends once, in one way.
            assert answer.num_ends <= 1, answer
            assert not (answer.is_cut and answer.num_ends), answer
            if answer.is_good:
                return
            is_refused = answer.status in RETRYABLE and not answer.is_cut
            assert answer.is_cut or is_refused, answer
            time.sleep(0.25)
        raise AssertionError(f"never answered: {self.attempts}")


class RouterTest(unittest.TestCase):
    """Subclasses start a router, and have the tests of RouterLaws."""

    FLAGS: tuple[str, ...] = ()  # of the replicas

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.replicas: list[Replica] = []
        for _ in range(3):
            self.replicas.append(self.start_replica())
        self.url = self.start_router()

    def start_replica(self, port: int = 0) -> Replica:
        flags = self.FLAGS
        if not self.replicas:  # as docs/deploy.md has it
            flags += ("--files", str(self.folder / "files"))
        return self.enterContext(Replica(*flags, port=port))

    def start_router(self) -> str:
        """Its URL, once it answers."""
        raise NotImplementedError

    def start_process(self, *command: object, **options) -> subprocess.Popen:
        with (self.folder / "router.log").open("w") as log:
            process = subprocess.Popen([str(word) for word in command],
                                       stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=subprocess.STDOUT, **options)

        def end() -> None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

        self.addCleanup(end)
        return process

    def wait_for_router(self, url: str) -> None:
        def answers() -> bool:
            return ask(url, {"prompt": "It rains.", "max_tokens": 1}).is_good

        try:
            wait_until("the router answers", answers)
        except TimeoutError:
            print((self.folder / "router.log").read_text()[-5000:])
            raise

    def served(self, act: Callable[[], object]) -> list[int]:
        """How many requests each replica got by `act`."""
        before = [replica.num_requests() for replica in self.replicas]
        act()
        return [replica.num_requests() - count
                for replica, count in zip(self.replicas, before)]

    @contextlib.contextmanager
    def kept_busy(self, replica: Replica) -> Iterator[None]:
        """It always has something to do, of many rows."""
        ends = threading.Event()

        def keep_busy(max_tokens: int) -> None:
            while not ends.is_set():
                ask(replica.url, {"prompt": "It rains.", "num_beams": 32,
                                  "max_tokens": max_tokens, "ignore_eos": True})

        # They do not end together.
        clients = [threading.Thread(target=keep_busy, args=(max_tokens,))
                   for max_tokens in (50, 70, 90)]
        for client in clients:
            client.start()
        try:
            wait_until("a replica is busy", replica.num_running)
            yield
        finally:
            ends.set()
            for client in clients:
                client.join()

    def busy(self, alive: list[Replica]) -> Replica:
        """The one replica that has something to do."""
        found: list[Replica] = []

        def look() -> bool:
            found[:] = [replica for replica in alive if replica.num_running()]
            return bool(found)

        wait_until("a replica runs a request", look)
        self.assertEqual(len(found), 1)
        return found[0]

    def assert_same(self, answer: Answer, expected: Answer) -> None:
        self.assertTrue(answer.is_good, answer)
        self.assertEqual(answer.choices(), expected.choices())


class FileLaws:
    """What a router keeps that knows of the replica with `--files`."""

    def test_files_are_those_of_one_replica(self) -> None:
        line = b'{"custom_id": "a"}\n'
        content = line * (20_000_000 // len(line))  # beyond other bodies' bound
        head = (b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n'
                b'\r\nbatch\r\n--x\r\nContent-Disposition: form-data; '
                b'name="file"; filename="a.jsonl"\r\n\r\n')
        request = urllib.request.Request(
            self.url + "/v1/files", head + content + b"\r\n--x--\r\n",
            {"Content-Type": "multipart/form-data; boundary=x"})
        with urllib.request.urlopen(request) as answer:
            file = json.load(answer)
        self.assertEqual(file["bytes"], len(content))
        for _ in range(6):
            with urllib.request.urlopen(
                    f"{self.url}/v1/files/{file['id']}") as answer:
                self.assertEqual(json.load(answer), file)


class RouterLaws:
    """Of every router. To be inherited beside RouterTest."""

    def test_answers_are_those_of_one_replica(self) -> None:
        for body in bodies():
            self.assert_same(ask(self.url, body),
                             ask(self.replicas[0].url, body))

    def test_killed_in_mid_stream(self) -> None:
        expected = ask(self.replicas[0].url, LONG)
        exchange = Exchange(self.url, LONG)
        next(exchange.events())
        victim = self.busy(self.replicas)
        victim.kill()
        answer = exchange.finish()
        # The client sees that something is missing, and what it has is right.
        self.assertTrue(answer.is_cut, answer)
        self.assertEqual(answer.num_ends, 0)
        text = answer.choices()[0]["text"]
        whole = expected.choices()[0]["text"]
        self.assertTrue(whole.startswith(text))
        self.assertLess(len(text), len(whole))
        # It asks again, and has it.
        again = Ask(LONG)
        again.run(self.url)
        self.assert_same(again.answer, expected)
        # One that is started in its place takes part.
        self.replicas[self.replicas.index(victim)] = self.start_replica(
            victim.port)
        self.wait_until_all_serve()

    def test_drained_in_mid_stream(self) -> None:
        expected = ask(self.replicas[0].url, LONG)
        exchange = Exchange(self.url, LONG)
        next(exchange.events())
        drained = self.busy(self.replicas)
        drained.drain()
        for body in bodies()[:12]:
            answer = ask(self.url, body)
            self.assertTrue(answer.is_good, answer)
        # What ran has ended as if nothing had happened.
        answer = exchange.finish()
        self.assertEqual(answer.num_ends, 1)
        self.assert_same(answer, expected)
        self.assertEqual(drained.wait(), 0)
        for body in bodies()[:12]:
            again = Ask(body)
            again.run(self.url)
            self.assertEqual(len(again.attempts), 1, again.attempts)

    def test_under_load_one_is_killed_one_drains_one_starts(self) -> None:
        requests = [Ask(body) for body in bodies() * 3]
        expected = [ask(self.replicas[0].url, body) for body in bodies()] * 3
        waiting = list(enumerate(requests))
        failures: list[BaseException] = []

        def client() -> None:
            while waiting and not failures:
                with contextlib.suppress(IndexError):
                    index, request = waiting.pop(0)
                    try:
                        request.run(self.url)
                        self.assert_same(request.answer, expected[index])
                    except BaseException as failure:
                        failures.append(failure)
                        raise

        def is_left(share: float) -> bool:
            return bool(failures) or len(waiting) <= share * len(requests)

        clients = [threading.Thread(target=client) for _ in range(6)]
        for thread in clients:
            thread.start()
        killed, drained, _ = self.replicas
        wait_until("a quarter is answered", lambda: is_left(0.75))
        wait_until("it is busy", lambda: killed.num_running() or is_left(0.6))
        killed.kill()
        started = self.start_replica(killed.port)
        wait_until("a half is answered", lambda: is_left(0.5))
        drained.drain()
        for thread in clients:
            thread.join(PATIENCE)
        self.assertEqual(failures, [])
        self.assertEqual(drained.wait(), 0)

        def takes_part() -> bool:
            return ask(self.url, bodies()[0]).is_good and (
                started.num_requests() > 0)

        wait_until("the one that was started gets requests", takes_part)
        attempts = [attempt for request in requests
                    for attempt in request.attempts]
        num_cut = sum(attempt.is_cut for attempt in attempts)
        num_refused = sum(attempt.status in RETRYABLE for attempt in attempts)
        print(f"{len(requests)} requests, {len(attempts)} attempts: {num_cut} "
              f"cut off, {num_refused} refused by the router")
        # Who was not on the replica that died was not cut off.
        self.assertLessEqual(num_cut, len(clients))

    def wait_until_all_serve(self) -> None:
        seen = [0, 0, 0]

        def look() -> bool:
            counts = self.served(lambda: [
                ask(self.url, {"prompt": "It rains.", "max_tokens": 1})
                for _ in range(6)])
            seen[:] = [a + b for a, b in zip(seen, counts)]
            return all(seen)

        wait_until("every replica gets requests", look)

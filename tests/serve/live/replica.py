"""Replica: a server that runs, on the loopback network."""

import http.client
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Self

from live.environment import MODEL, program

SAMPLE = re.compile(r"^([^\s{]+)(\{[^}]*\})? (\S+)$", re.MULTILINE)
PATIENCE = 60  # seconds, for what takes milliseconds on an idle machine


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(what: str, is_so, seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.005)


class Replica:
    """`espalier serve`; ready once it is made."""

    def __init__(self, *flags: str, model: Path = MODEL, port: int = 0,
                 device: str = "cpu") -> None:
        where = ["--device", device]
        if device == "cpu":
            where += ["--threads", "1"]
        self.process = subprocess.Popen(
            [program(), "serve", "-m", model, "--port", str(port), *where,
             *flags],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True)
        self.log: list[str] = []
        self.port = 0
        is_ready = threading.Event()
        self.reader = threading.Thread(target=self._read, args=(is_ready,),
                                       daemon=True)
        self.reader.start()
        if not is_ready.wait(PATIENCE) or self.port == 0:
            self.kill()
            raise RuntimeError("".join(["no server: ", *self.log]))

    def _read(self, is_ready: threading.Event) -> None:
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                is_ready.set()
        is_ready.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metrics(self) -> dict[str, float]:
        """By name and labels without model_name: `espalier:pages{state="held"}`."""
        values = {}
        for name, labels, value in SAMPLE.findall(self.get("/metrics")[1]):
            rest = re.sub(r'model_name="[^"]*",?', "", labels)
            values[name + ("" if rest in ("", "{}") else rest)] = float(value)
        return values

    def num_requests(self) -> int:
        return int(self.metrics()["espalier:requests_total"])

    def num_running(self) -> int:
        metrics = self.metrics()
        return int(metrics["vllm:num_requests_running"]
                   + metrics["vllm:num_requests_waiting"])

    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()

    def drain(self) -> None:
        """Tells it to; it has heard when /ready says so, or it has ended."""
        self.process.send_signal(signal.SIGTERM)

        def has_heard() -> bool:
            try:
                return not self.is_running() or self.get("/ready")[0] == 503
            except OSError:
                return True

        wait_until("a server drains", has_heard)

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

"""What a client of a server sees, to the last byte: whole answers and streams."""

import http.client
import json
from dataclasses import dataclass, field
from typing import Iterator
from urllib.parse import urlsplit

from live.replica import PATIENCE

DONE = "[DONE]"


@dataclass
class Answer:
    """How one attempt ended: `status` 0 if there was none, or it was cut off."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: dict = field(default_factory=dict)  # one that is no stream
    events: list[dict] = field(default_factory=list)
    num_ends: int = 0  # [DONE]
    is_cut: bool = False  # the connection ended before the answer did
    why: str = ""

    @property
    def is_good(self) -> bool:
        return self.status == 200 and not self.is_cut and not self.errors()

    def errors(self) -> list[dict]:
        return [event for event in [self.body, *self.events] if "error" in event]

    def choices(self) -> dict[int, dict]:
        """What each choice came to, whether it came at once or in pieces."""
        choices: dict[int, dict] = {}
        for part in [self.body, *self.events]:
            for piece in part.get("choices", []):
                whole = choices.setdefault(piece["index"], {"text": ""})
                text = (piece.get("message") or piece.get("delta") or {}).get(
                    "content") or piece.get("text") or ""
                whole["text"] += text
                if piece.get("token_ids"):
                    whole.setdefault("token_ids", []).extend(piece["token_ids"])
                for name in ("finish_reason", "stop_reason", "score",
                             "cum_log_prob"):
                    if piece.get(name) is not None:
                        whole[name] = piece[name]
        return choices


class Exchange:
    """One request on a connection of its own."""

    def __init__(self, url: str, body: dict, headers: dict | None = None,
                 path: str = "/v1/completions") -> None:
        self.answer = Answer()
        self.is_stream = body.get("stream", False)
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc,
                                                     timeout=PATIENCE)
        try:
            self.connection.request(
                "POST", path, json.dumps(body),
                {"Content-Type": "application/json", **(headers or {})})
            self.response = self.connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.answer.is_cut = True
            self.answer.why = repr(error)
            self.response = None
            self.connection.close()
            return
        self.answer.status = self.response.status
        self.answer.headers = {name.lower(): value for name, value
                               in self.response.getheaders()}

    def events(self) -> Iterator[dict]:
        """Each as it comes, but for [DONE]."""
        while line := self._line():
            if line.startswith(b"data: "):
                text = line[6:].decode().strip()
                assert self.answer.num_ends == 0, f"after [DONE]: {text}"
                if text == DONE:
                    self.answer.num_ends += 1
                    continue
                self.answer.events.append(json.loads(text))
                yield self.answer.events[-1]

    def _line(self) -> bytes:
        try:
            return self.response.readline()
        except (OSError, http.client.HTTPException) as error:
            self.answer.is_cut = True
            self.answer.why = repr(error)
            return b""

    def finish(self) -> Answer:
        """Reads what is left."""
        if self.response is None:
            return self.answer
        if self.answer.status == 200 and self.is_stream:
            for _ in self.events():
                pass
            # A proxy may end what has been cut off as if it were whole.
            if self.answer.num_ends == 0 and not self.answer.is_cut:
                self.answer.is_cut = True
                self.answer.why = "no [DONE]"
        else:
            self._read_body()
        self.connection.close()
        return self.answer

    def leave(self) -> None:
        """Without the rest."""
        if self.response is not None:
            self.response.close()
        self.connection.close()

    def _read_body(self) -> None:
        try:
            text = self.response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            self.answer.is_cut = True
            self.answer.why = repr(error)
            return
        try:
            self.answer.body = json.loads(text)
        except ValueError:  # a proxy's own
            self.answer.body = {"error": {"message": text}}


def ask(url: str, body: dict, headers: dict | None = None,
        path: str = "/v1/completions") -> Answer:
    return Exchange(url, body, headers, path).finish()

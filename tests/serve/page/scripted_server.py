"""A server that streams what a test tells it to, and notes what it is asked:
for what no real server would answer."""

import contextlib
import json
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def policy_of(source: str) -> str:
    """The policy in the text of page.cc."""
    return "".join(re.findall(r'"([^"\n]*)"', source[source.rindex("return"):]))


def beams_event(step: int, *beams: dict) -> dict:
    return {"choices": [], "espalier": {"prompt": 0, "step": step, "beams": [
        {"finish_reason": None, **beam} for beam in beams]}}


def choice_event(index: int, text: str, **more) -> dict:
    return {"choices": [{"index": index, "text": text, "finish_reason": None,
                         **more}]}


def form_of(content_type: str, data: bytes) -> dict:
    boundary = content_type.partition("boundary=")[2].encode()
    fields = {}
    for part in data.split(b"--" + boundary)[1:-1]:
        head, _, value = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        name = re.search(rb'; name="([^"]*)"', head)[1].decode()
        value = value.removesuffix(b"\r\n")
        fields[name] = value if b"filename=" in head else value.decode()
    return fields


class _HttpServer(ThreadingHTTPServer):
    """Closes open connections with itself: browsers open one ahead of need,
    and a thread that reads there would answer for a server that is gone."""

    daemon_threads = True

    def __init__(self, *args):
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request, client_address):
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def server_close(self):
        super().server_close()
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):  # its reader went before
                    connection.shutdown(socket.SHUT_RDWR)


class ScriptedServer:
    """Events are objects, or bytes that go out as they are, or seconds to wait,
    or "close". Every stream ends as the script does. A form is noted as its
    fields, in their order, with the bytes of files."""

    def __init__(self, html: str, policy: str):
        self.html = html
        self.policy = policy
        self.script: list = []
        self.refusal: tuple[int, dict] | None = None
        self.model: dict = {"id": "scripted", "object": "model"}
        self.trace: str | None = None
        self.trace_refusal: tuple[int, dict] | None = None
        self.key = ""
        self.requests: list[tuple[str, dict]] = []  # path, body
        self.num_dropped = 0  # streams whose reader went
        self._server = _HttpServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def _stream(self, write, end=b"data: [DONE]\n\n"):
        for event in self.script:
            if event == "close":
                return
            if isinstance(event, (int, float)):
                time.sleep(event)
            elif isinstance(event, bytes):
                write(event)
            else:
                data = json.dumps({"id": "cmpl-1", **event})
                write(f"data: {data}\n\n".encode())
        write(end)

    def _handler(self):
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args):
                pass

            def answer(self, status, body, content_type="application/json"):
                data = body if isinstance(body, str) else json.dumps(body)
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Security-Policy", server.policy)
                self.end_headers()
                self.wfile.write(data.encode())

            def refuse(self, status, **error):
                self.answer(status, {"error": {"message": "", "type": "",
                                               "param": None, "code": None,
                                               **error}})

            def may(self):
                given = self.headers.get("Authorization", "")
                if server.key in ("", given.removeprefix("Bearer ")):
                    return True
                self.refuse(401, message="The API key is wrong.")
                return False

            def do_GET(self):
                if self.path == "/":
                    return self.answer(200, server.html,
                                       "text/html; charset=utf-8")
                if not self.may():
                    return None
                if self.path == "/v1/models":
                    return self.answer(200, {"data": [server.model]})
                if server.trace_refusal and "/trace" in self.path:
                    status, error = server.trace_refusal
                    return self.refuse(status, **error)
                if server.trace is not None and "/trace" in self.path:
                    return self.answer(200, server.trace)
                return self.refuse(404, message="no such thing")

            def do_POST(self):
                length = int(self.headers["Content-Length"])
                data = self.rfile.read(length)
                is_form = "boundary=" in self.headers["Content-Type"]
                body = (form_of(self.headers["Content-Type"], data) if is_form
                        else json.loads(data))
                server.requests.append((self.path, body))
                if not self.may():
                    return None
                if server.refusal:
                    status, error = server.refusal
                    return self.refuse(status, **error)
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                try:
                    if is_form:
                        server._stream(self.wfile.write, end=b"")
                    else:
                        server._stream(self.wfile.write)
                except ConnectionError:
                    server.num_dropped += 1
                return None

        return Handler

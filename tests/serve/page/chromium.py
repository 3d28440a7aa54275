"""Headless Chromium, driven over its DevTools protocol by pipes.

    with Chromium() as browser:
        page = browser.open("http://127.0.0.1:8000/", width=360)
        page.type("#prompt", "Hello")
        page.press("Enter", control=True)
        page.wait("document.body.classList.contains('done')")

The standard library is all it needs. A method waits until it is done, for
TIMEOUT seconds at most.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

TIMEOUT = 30

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    def __init__(self, *flags: str):
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_child, self._out = os.pipe()
        self._in, from_child = os.pipe()
        # The pipe it reads is 3 there, the one it writes 4.
        command = [
            "bash", "-c", 'exec 3<&"$0" 4>&"$1"; shift; exec "$@"',
            str(to_child), str(from_child), "--", find_chromium(),
            "--headless=new", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--remote-debugging-pipe",
            f"--user-data-dir={self._profile.name}", *flags, "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=(to_child, from_child),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        self._buffer = b""
        self._num_calls = 0
        self._passwords: dict[str, str] = {}  # by session
        self.events: list[dict] = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        try:
            self.call("Browser.close")
        except (OSError, TimeoutError):
            self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)
        self._profile.cleanup()

    def _read(self, deadline: float) -> dict:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise TimeoutError("Chromium does not answer")
            data = os.read(self._in, 1 << 16)
            if not data:
                raise OSError("Chromium has ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _send(self, method: str, session: str | None, params: dict) -> int:
        self._num_calls += 1
        message = {"id": self._num_calls, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        return self._num_calls

    def call(self, method: str, session: str | None = None, **params) -> dict:
        call = self._send(method, session, params)
        deadline = time.monotonic() + TIMEOUT
        while True:
            answer = self._read(deadline)
            if answer.get("id") == call:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            if "method" in answer:
                self._take(answer)

    def _take(self, event: dict):
        """Signs in where a page is asked to, and keeps other events."""
        session, params = event.get("sessionId"), event["params"]
        if event["method"] == "Fetch.requestPaused":
            self._send("Fetch.continueRequest", session,
                       {"requestId": params["requestId"]})
        elif event["method"] == "Fetch.authRequired":
            self._send("Fetch.continueWithAuth", session, {
                "requestId": params["requestId"],
                "authChallengeResponse": {
                    "response": "ProvideCredentials", "username": "",
                    "password": self._passwords.pop(session, "")}})
        else:
            self.events.append(event)

    def open(self, url: str, password: str | None = None, **view) -> "Page":
        """With a password, as typed where the browser asks for it once."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target,
                            flatten=True)["sessionId"]
        page = Page(self, target, session)
        if password is not None:
            self._passwords[session] = password
            page.call("Fetch.enable", handleAuthRequests=True)
        page.resize(**view)
        page.go(url)
        return page


class Page:
    def __init__(self, browser: Chromium, target: str, session: str):
        self._browser = browser
        self._target = target
        self._session = session
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params) -> dict:
        return self._browser.call(method, self._session, **params)

    def close(self):
        self._browser.call("Target.closeTarget", targetId=self._target)

    def go(self, url: str):
        self.call("Page.navigate", url=url)
        self.wait(f"location.href === {json.dumps(url)} && "
                  "document.readyState === 'complete'")

    def resize(self, width=1280, height=900, scheme="light"):
        self.call("Emulation.setDeviceMetricsOverride", width=width,
                  height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": scheme}])

    def run(self, expression: str):
        """The value of an expression of JavaScript; of a promise its value."""
        answer = self.call("Runtime.evaluate", expression=expression,
                           returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait(self, expression: str, timeout: float = TIMEOUT):
        deadline = time.monotonic() + timeout
        while True:
            value = self.run(expression)
            if value:
                return value
            if time.monotonic() > deadline:
                raise TimeoutError(f"never: {expression}; the page shows: " +
                                   str(self.run("document.body.innerText")))
            time.sleep(0.02)

    def text(self, selector: str) -> str:
        return self.run(
            f"document.querySelector({json.dumps(selector)}).textContent")

    def focus(self, selector: str):
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")

    def insert(self, text: str):
        """As if typed, where the focus is."""
        self.call("Input.insertText", text=text)

    def type(self, selector: str, text: str):
        """Puts `text` in place of what is there."""
        self.focus(selector)
        self.run("document.activeElement.select()")
        if text:
            self.insert(text)
        else:
            self.press("Backspace")

    def press(self, key: str, control=False, shift=False):
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, " ": 32, "Backspace": 8,
                 "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40}
        event = {"key": key, "code": "Space" if key == " " else key,
                 "windowsVirtualKeyCode": codes[key],
                 "modifiers": 2 * control + 8 * shift}
        text = {"Enter": "\r", " ": " "}.get(key)
        down = {"text": text} if text and not control else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **down)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def click(self, selector: str):
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def choose_file(self, selector: str, path: Path):
        """Puts a file into an input, as if chosen there."""
        handle = self.call(
            "Runtime.evaluate",
            expression=f"document.querySelector({json.dumps(selector)})")
        self.call("DOM.setFileInputFiles", files=[str(path)],
                  objectId=handle["result"]["objectId"])

    def save_screenshot(self, path: Path, whole=False):
        data = self.call("Page.captureScreenshot", format="png",
                         captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def faults(self) -> list[str]:
        """What was thrown, and what the policy refused. Answers of the server
        that are errors are none."""
        found = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(event["params"]))
            if event["method"] == "Log.entryAdded":
                entry = event["params"]["entry"]
                if entry["level"] == "error" and entry["source"] != "network":
                    found.append(entry["text"])
        return found

"""The page of the server in headless Chromium, before `espalier serve` with the
embedded translator. Where there is no Chromium it is skipped, and says so.

    page_server_test.py PROGRAM MODEL [SCREENSHOT]

SCREENSHOT is the file of the picture in docs/server_page.md.
"""

import json
import os
import re
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from chromium import Chromium, find_chromium  # noqa: E402
from scripted_server import ScriptedServer  # noqa: E402

DONE = "document.querySelector('#status').textContent.startsWith('Done')"
TEXTS = ("[...document.querySelectorAll('#list .text')]"
         ".map((text) => text.textContent)")
SCORES = ("[...document.querySelectorAll('#list .score')]"
          ".map((score) => score.textContent.replace('−', '-'))")


class Server:
    def __init__(self, program: str, model: str, *flags: str, key=""):
        self._process = subprocess.Popen(
            [program, "serve", "--model", model, "--port", "0", *flags],
            env={**os.environ, "ESPALIER_API_KEY": key} if key else None,
            stderr=subprocess.PIPE, text=True)
        lines = []
        for line in self._process.stderr:
            lines.append(line)
            if found := re.search(r"listening on (http://\S+)", line):
                self.url = found[1] + "/"
                return
        raise RuntimeError("the server did not start: " + "".join(lines))

    def close(self):
        self._process.terminate()
        self._process.stderr.read()
        self._process.stderr.close()
        self._process.wait()

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path) as answer:
            return answer.read().decode()

    def complete(self, **body) -> dict:
        request = urllib.request.Request(
            self.url + "v1/completions", json.dumps(body).encode(),
            {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)


@unittest.skipUnless(find_chromium(), "no Chromium: install it to test the page")
class PageServerTest(unittest.TestCase):
    program: str
    model: str
    screenshot: Path | None = None

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.program, cls.model, "--trace-requests", "8",
                            "--page-size", "4")
        cls.addClassCleanup(cls.server.close)
        cls.browser = Chromium()
        cls.addClassCleanup(cls.browser.close)

    def open(self, server=None, **view):
        page = self.browser.open((server or self.server).url, **view)
        self.addCleanup(page.close)
        self.addCleanup(lambda: self.assertEqual(page.faults(), []))
        page.wait("document.querySelector('#model').textContent !== ''")
        return page

    def start(self, page, prompt):
        page.type("#prompt", prompt)
        page.press("Enter", control=True)

    def test_beams_by_the_keyboard_alone_are_those_of_the_api(self):
        page = self.open()
        self.assertEqual(page.run("document.activeElement.id"), "prompt")
        page.insert("Where is the station?")
        page.press("Tab")  # how tokens are chosen
        page.press("Tab")
        self.assertEqual(page.run("document.activeElement.name"), "num_beams")
        page.insert("6")
        page.press("Tab")
        page.insert("3")
        page.press("Enter", control=True)
        page.wait(DONE)
        answer = self.server.complete(prompt="Where is the station?",
                                      num_beams=6, n=3, max_tokens=64)
        choices = answer["choices"]
        self.assertEqual(page.run(TEXTS), [c["text"] for c in choices])
        self.assertEqual(page.run(SCORES),
                         [f"{c['score']:.4f}" for c in choices])
        self.assertEqual(
            page.run("document.querySelectorAll('#tree .best.finished').length"
                     " > 0"), True)

    def test_samples_of_a_seed_are_those_of_the_api(self):
        page = self.open()
        page.click("[name=search][value=samples]")
        page.run("document.querySelector('#more').open = true")
        page.type("#field-seed-all", "7")
        self.start(page, "It rains.")
        page.wait(DONE)
        answer = self.server.complete(prompt="It rains.", n=3, seed=7,
                                      max_tokens=64, do_sample=True)
        self.assertEqual(sorted(page.run(TEXTS)),
                         sorted(c["text"] for c in answer["choices"]))

    def trace(self, page, format: str) -> str:
        """The trace of the page's last request, as the page asked for it."""
        return page.run(
            "fetch(performance.getEntriesByType('resource')"
            ".map((entry) => entry.name)"
            ".filter((name) => name.includes('/trace')).at(-1)"
            f".replace('jsonl', '{format}')).then((answer) => answer.text())")

    def test_the_tree_has_every_beam_that_lived(self):
        page = self.open()
        self.start(page, "How old are you?")
        page.wait("document.querySelectorAll('#map rect').length > 0")
        num_drawn = page.run("document.querySelectorAll('#tree text').length")
        events = map(json.loads, self.trace(page, "jsonl").splitlines())
        lived = [event for event in events if event["event"] == "candidate"
                 and event["what"] != "pruned"]
        self.assertGreater(len(lived), 10)
        self.assertEqual(num_drawn, len(lived))

    def test_pages_and_the_saved_trace(self):
        page = self.open()
        self.start(page, "How old are you?")
        page.wait("document.querySelectorAll('#map rect').length > 0")
        self.assertRegex(page.text("#map-hint"), r"held \d+ pages|No two")
        self.assertIn("<title>The tree of a search</title>",
                      self.trace(page, "html"))

    def test_without_traces_it_says_how_to_have_them(self):
        server = Server(self.program, self.model)
        self.addCleanup(server.close)
        page = self.open(server)
        self.start(page, "It rains.")
        page.wait(DONE)
        page.wait("document.querySelector('#map-hint').textContent"
                  ".includes('--trace-requests')")

    def test_a_browser_that_has_signed_in_may_use_it(self):
        server = Server(self.program, self.model, key="key-of-eight")
        self.addCleanup(server.close)
        with self.assertRaises(urllib.error.HTTPError):
            server.get("")
        page = self.open(server, password="key-of-eight")
        self.start(page, "It rains.")
        page.wait(DONE)
        self.assertIn("Il pleut.", page.run(TEXTS))

    def test_a_page_of_others_reads_answers_where_it_may(self):
        key = "key-of-eight"
        ask = """fetch("%sv1/completions", {method: "POST", headers: {
            "Content-Type": "application/json", Authorization: "Bearer %s"},
            body: '{"prompt": "It rains.", "num_beams": 4, "stream": %s}'})
            .then((answer) => answer.text()).catch(() => "refused")"""
        others = ScriptedServer("<p>Of another port.</p>", policy="")
        self.addCleanup(others.close)
        page = self.browser.open(others.url)
        self.addCleanup(page.close)
        for origin, may in ((others.url.rstrip("/"), True), ("*", True),
                            ("https://chat.example", False)):
            server = Server(self.program, self.model, "--allowed-origin",
                            origin, key=key)
            self.addCleanup(server.close)
            for stream in ("true", "false"):
                answer = page.run(ask % (server.url, key, stream))
                if may:
                    self.assertIn('"finish_reason":"stop"', answer)
                else:
                    self.assertEqual(answer, "refused")

    def test_markup_in_a_prompt_stays_text(self):
        page = self.open()
        prompt = "<script>document.title = 'bad'</script><img src=x>"
        self.start(page, prompt)
        page.wait(DONE)
        answer = self.server.complete(prompt=prompt, num_beams=4, n=4,
                                      max_tokens=64)
        self.assertEqual(page.run(TEXTS),
                         [c["text"] for c in answer["choices"]])
        self.assertEqual(page.run("document.title"), "espalier")
        self.assertEqual(page.run("document.querySelectorAll('img').length"), 0)

    def test_a_refusal_shows_and_focuses_its_field(self):
        page = self.open()
        page.type("#field-n-beams", "9")
        self.start(page, "It rains.")
        page.wait("!document.querySelector('#error').hidden")
        self.assertIn("9", page.text("#error"))
        self.assertEqual(page.run("document.activeElement.id"), "field-n-beams")

    def test_stop_frees_what_the_request_held(self):
        page = self.open()
        page.run("document.querySelector('#more').open = true")
        page.type("#field-num_beams-beams", "32")
        page.type("#field-max_tokens-all", "400")
        page.type("#field-min_tokens-all", "400")
        self.start(page, "It rains.")
        page.wait(f"{TEXTS}.length > 1")
        page.press("Escape")
        page.wait("document.querySelector('#status').textContent === 'Stopped.'")
        deadline = time.monotonic() + 10
        while json.loads(self.server.get("load"))["server_load"] > 0:
            self.assertLess(time.monotonic(), deadline, "it still runs")
            time.sleep(0.02)

    def test_narrow_screens_scroll_only_down(self):
        for width in (360, 414):
            page = self.open(width=width, height=740)
            self.start(page, "My grandmother lives in a village by the sea.")
            page.wait("document.querySelectorAll('#map rect').length > 0")
            self.assertLessEqual(
                page.run("document.documentElement.scrollWidth"), width)

    def test_the_answer_says_what_the_page_may_do(self):
        with urllib.request.urlopen(self.server.url) as answer:
            policy = answer.headers["Content-Security-Policy"]
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)

    def test_the_picture_of_the_documentation(self):
        page = self.open(width=1340, height=860)
        page.type("#field-num_beams-beams", "5")
        self.start(page, "I don't know what to say.")
        page.wait("document.querySelectorAll('#map rect').length > 0")
        page.run("document.activeElement.blur()")
        time.sleep(1)  # until what fades has faded
        self.assertGreater(page.run("document.querySelectorAll('#tree circle')"
                                    ".length"), 30)
        if self.screenshot:
            page.save_screenshot(self.screenshot, whole=True)


if __name__ == "__main__":
    PageServerTest.program, PageServerTest.model = sys.argv[1:3]
    if len(sys.argv) > 3:
        PageServerTest.screenshot = Path(sys.argv[3])
    if not find_chromium():
        print("no Chromium: the page is not tested", file=sys.stderr)
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])

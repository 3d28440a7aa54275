"""The page of the server in headless Chromium, before a server that says what
a test wants. Where there is no Chromium, all of it is skipped, and says so.

    page_test.py DIRECTORY [SCREENSHOTS]

DIRECTORY has page.html and page.cc, as they are built.
"""

import json
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from chromium import Chromium, find_chromium  # noqa: E402
from scripted_server import (ScriptedServer, beams_event,  # noqa: E402
                             choice_event, policy_of)

HOSTILE = "<script>document.title='bad'</script><img src=x onerror=bad()>"
DONE = "document.querySelector('#status').textContent.startsWith('Done')"
TEXTS = ("[...document.querySelectorAll('#list .text')]"
         ".map((text) => text.textContent)")


def beam(text: str, tokens: list[int], **more) -> dict:
    return {"text": text, "tokens": tokens, "score": -0.5 * len(tokens),
            "cum_log_prob": -1.0 * len(tokens), **more}


TWO_BEAMS = [
    beams_event(1, beam("The", [1]), beam("A", [2])),
    beams_event(2, beam("The vine", [1, 3]), beam("The tree", [1, 4])),
    beams_event(3, beam("The vine grows", [1, 3, 5]),
                beam("The vine rests", [1, 3, 6])),
    choice_event(0, "The vine grows", token_ids=[1, 3, 5], score=-0.5,
                 cum_log_prob=-1.5, finish_reason="stop"),
    choice_event(1, "The vine rests", token_ids=[1, 3, 6], score=-0.75,
                 cum_log_prob=-2.25, finish_reason="length"),
    {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 6}},
]

TRACE = "\n".join(json.dumps(event) for event in [
    {"event": "request", "request": 3},
    {"event": "pages", "request": 3, "step": 1, "shared": [7],
     "slots": [{"slot": 0, "node": -1, "pages": []}], "cached": [7],
     "num_held": 1, "num_pages": 9},
    {"event": "pages", "request": 3, "step": 2, "shared": [7],
     "slots": [{"slot": 0, "node": 0, "pages": [2]},
               {"slot": 1, "node": 1, "pages": [5]}],
     "copied": [{"from": 2, "to": 5, "num_tokens": 3}],
     "num_held": 3, "num_pages": 9},
    {"event": "end", "request": 3, "hypotheses": []}]) + "\n"


@unittest.skipUnless(find_chromium(), "no Chromium: install it to test the page")
class PageTest(unittest.TestCase):
    built: Path
    screenshots: Path | None = None

    @classmethod
    def setUpClass(cls):
        cls.browser = Chromium()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def setUp(self):
        self.server = ScriptedServer(
            (self.built / "page.html").read_text(),
            policy_of((self.built / "page.cc").read_text()))
        self.server.script = TWO_BEAMS
        self.addCleanup(self.server.close)

    def open(self, **view):
        page = self.browser.open(self.server.url, **view)
        self.addCleanup(page.close)
        self.addCleanup(lambda: self.assertEqual(page.faults(), []))
        page.wait("document.querySelector('#model').textContent !== '' || "
                  "!document.querySelector('#error').hidden || "
                  "!document.querySelector('#key-row').hidden")
        return page

    def start(self, page, prompt="Hello"):
        page.type("#prompt", prompt)
        page.press("Enter", control=True)

    def asked(self) -> dict:
        return self.server.requests[-1][1]

    def save(self, page, name):
        if self.screenshots:
            page.save_screenshot(self.screenshots / f"{name}.png")

    # --- Requests ----------------------------------------------------------

    def test_only_what_was_asked_for_is_sent(self):
        page = self.open()
        self.start(page, "Hello")
        page.wait(DONE)
        path, body = self.server.requests[-1]
        self.assertEqual(path, "/v1/completions")
        self.assertEqual(body, {
            "model": "scripted", "prompt": "Hello", "num_beams": 4, "n": 4,
            "max_tokens": 64, "do_sample": False, "stream_beams": True,
            "stream": True, "stream_options": {"include_usage": True},
            "return_token_ids": True})

    def test_all_parameters_are_sent_by_their_names(self):
        page = self.open()
        page.run("document.querySelector('#more').open = true")
        for field, text in {"num_beams-beams": "6", "n-beams": "2",
                            "length_penalty-beams": "-0.5",
                            "num_beam_groups-beams": "3",
                            "diversity_penalty-beams": "1e-1",
                            "repetition_penalty-all": "1.2",
                            "no_repeat_ngram_size-all": "3",
                            "min_tokens-all": "2", "max_tokens-all": "9",
                            "seed-all": "18446744073709551615",
                            "stop-all": "one\ntwo, three\n"}.items():
            page.type(f"#field-{field}", text)
        page.run("const early = document.querySelector("
                 "'#field-early_stopping-beams'); early.value = '\"never\"'")
        self.start(page, "Hello")
        page.wait(DONE)
        body = self.asked()
        for name, value in {"num_beams": 6, "n": 2, "length_penalty": -0.5,
                            "num_beam_groups": 3, "diversity_penalty": 0.1,
                            "repetition_penalty": 1.2,
                            "no_repeat_ngram_size": 3, "min_tokens": 2,
                            "max_tokens": 9, "early_stopping": "never",
                            "seed": 18446744073709551615,
                            "stop": ["one", "two, three"]}.items():
            self.assertEqual(body[name], value, name)
        self.assertNotIn("temperature", body)

    def test_samples_have_fields_of_their_own(self):
        self.server.script = [
            choice_event(0, "One"), choice_event(1, "Two"),
            choice_event(0, " more", finish_reason="stop"),
            choice_event(1, ".", finish_reason="length")]
        page = self.open()
        page.click("[name=search][value=samples]")
        page.run("document.querySelector('#more').open = true")
        page.type("#field-temperature-all", "0.7")
        page.type("#field-top_p-all", ".9")
        self.start(page)
        page.wait(DONE)
        body = self.asked()
        self.assertEqual((body["n"], body["temperature"], body["top_p"],
                          body["do_sample"]), (3, 0.7, 0.9, True))
        for name in ("num_beams", "length_penalty", "stream_beams"):
            self.assertNotIn(name, body)
        self.assertEqual(page.run(TEXTS), ["One more", "Two."])
        self.assertEqual(page.text("#list-title"), "Samples")

    def test_greedy_search_is_one_beam(self):
        self.server.script = [choice_event(0, "One"),
                              choice_event(0, " two", finish_reason="length")]
        page = self.open()
        page.type("#field-num_beams-beams", "")
        self.start(page)
        page.wait(DONE)
        body = self.asked()
        self.assertEqual((body["num_beams"], body["n"], body["do_sample"]),
                         (1, 1, False))
        self.assertNotIn("stream_beams", body)
        self.assertEqual(page.run(TEXTS), ["One two"])
        self.assertIn("1 hypothesis", page.text("#status"))

    def test_chat_is_there_where_the_model_has_a_template(self):
        page = self.open()
        self.assertTrue(page.run("document.querySelector('#kind').hidden"))
        self.server.model["espalier"] = {"chat": True}
        self.server.script = [
            {"choices": [{"index": 0, "delta": {"role": "assistant",
                                                "content": ""}}]},
            {"choices": [{"index": 0, "delta": {"content": "Hi!"},
                          "finish_reason": "stop"}]}]
        page = self.open()
        page.click("[value=chat]")
        page.click("[value=samples]")
        page.type("#system", "Be kind.")
        self.start(page, "Hello")
        page.wait(DONE)
        path, body = self.server.requests[-1]
        self.assertEqual(path, "/v1/chat/completions")
        self.assertEqual(body["messages"],
                         [{"role": "system", "content": "Be kind."},
                          {"role": "user", "content": "Hello"}])
        self.assertEqual(page.run(TEXTS), ["Hi!"])

    def test_curl_is_the_same_request(self):
        page = self.open()
        page.type("#prompt", "It's \"here\"\nand $HOME")
        page.click("#curl")
        command = page.wait("document.querySelector('#command').value")
        self.assertTrue(command.startswith(
            f"curl -N '{self.server.url}v1/completions'"))
        data = command[command.index("-d '") + 4:-1].replace("'\\''", "'")
        self.assertEqual(json.loads(data)["prompt"],
                         "It's \"here\"\nand $HOME")
        self.start(page, "It's \"here\"\nand $HOME")
        page.wait(DONE)
        self.assertEqual(self.asked(), json.loads(data))

    # --- Answers -----------------------------------------------------------

    def test_the_list_and_the_tree_are_those_of_the_answer(self):
        page = self.open()
        self.start(page)
        page.wait(DONE)
        self.assertEqual(page.run(TEXTS), ["The vine grows", "The vine rests"])
        self.assertEqual(page.text("#list .agreed"), "The vine ")
        self.assertEqual(page.text("#list .best .score"), "−0.5000")
        self.assertEqual(
            page.run("[...document.querySelectorAll('#tree .gone text')]"
                     ".map((label) => label.textContent).sort()"), ["A", "tree"])
        self.assertEqual(
            page.run("[...document.querySelectorAll('#tree .best text')]"
                     ".map((label) => label.textContent)"),
            ["The", "vine", "grows"])
        self.assertIn("4 prompt tokens · 6 generated tokens",
                      page.text("#status"))

    def test_live_beams_are_shown_as_they_come(self):
        self.server.script = [*TWO_BEAMS[:2], 60]
        page = self.open()
        self.start(page)
        page.wait(f"{TEXTS}.join() === 'The vine,The tree'")
        self.assertEqual(page.text("#list .agreed"), "The ")
        self.assertIn("Step 2", page.text("#status"))
        self.assertTrue(page.run("document.querySelector('#run').disabled"))
        page.press("Escape")
        page.wait("document.querySelector('#status').textContent === 'Stopped.'")
        self.assertEqual(page.run(TEXTS), ["The vine", "The tree"])

    def labels(self, page, of: str) -> list[str]:
        return page.run(f"[...document.querySelectorAll('#tree {of} text')]"
                        ".map((label) => label.textContent)")

    def test_steps_that_are_left_out_leave_no_hole(self):
        self.server.script = [TWO_BEAMS[0], *TWO_BEAMS[2:]]
        page = self.open()
        self.start(page)
        page.wait(DONE)
        self.assertEqual(self.labels(page, ".best"), ["The", "vine", "grows"])
        self.server.script = TWO_BEAMS[3:]
        self.start(page)
        page.wait(DONE)
        # What a straight line adds stands at its end.
        self.assertEqual(self.labels(page, ".best"), ["", "The vine", "grows"])

    def test_a_trace_has_the_steps_that_were_left_out(self):
        def candidate(node, parent, token, text, what):
            return {"event": "candidate", "request": 3, "node": node,
                    "parent": parent, "step": 1 if parent < 0 else 2,
                    "token": token, "text": text, "what": what,
                    "cum_log_prob": -1.0 * (node + 1)}
        self.server.trace = "\n".join(map(json.dumps, [
            {"event": "request", "request": 3},
            candidate(0, -1, 1, "▁The", "kept"),
            candidate(1, -1, 2, "▁A", "kept"),
            candidate(2, -1, 9, "▁An", "pruned"),
            candidate(3, 0, 3, "▁vine", "finished"),
            candidate(4, 0, 4, "▁tree", "finished"),
            {"event": "pages", "request": 3, "step": 1, "shared": [7],
             "slots": [], "num_held": 1, "num_pages": 9}]))
        self.server.script = [
            choice_event(0, "The vine", token_ids=[1, 3], score=-0.5,
                         finish_reason="stop")]
        page = self.open()
        self.start(page)
        page.wait("document.querySelectorAll('#tree .gone').length > 0")
        self.assertEqual(self.labels(page, ".best"), ["The", "vine"])
        self.assertEqual(self.labels(page, ".gone"), ["A"])
        self.assertEqual(self.labels(page, ".finished:not(.best)"), ["tree"])
        page.click("#list button")
        self.assertEqual(self.labels(page, ".lit"), ["The", "vine"])

    def test_hostile_texts_stay_text(self):
        self.server.script = [
            beams_event(1, beam(HOSTILE, [1]), beam("\u202e&lt;\u0000", [2])),
            {"choices": [], "warnings": [HOSTILE]},
            choice_event(0, HOSTILE, token_ids=[1], finish_reason=HOSTILE),
            choice_event(1, "]]>", token_ids=[2], finish_reason="stop")]
        self.server.model["id"] = HOSTILE
        page = self.open()
        self.start(page, HOSTILE)
        page.wait(DONE)
        self.assertEqual(self.asked()["prompt"], HOSTILE)
        self.assertEqual(page.run(TEXTS), [HOSTILE, "]]>"])
        self.assertEqual(page.run("document.title"), "espalier")
        self.assertEqual(page.run("document.querySelectorAll('img').length"), 0)
        self.assertIn(HOSTILE, page.text("#status"))

    def test_all_digits_of_a_seed_are_shown_and_sent(self):
        self.server.script = [
            {**choice_event(0, '"seed":5', token_ids=[1], finish_reason="stop"),
             "espalier": {"steps": 1, "seed": 18446744073709551557}}]
        page = self.open()
        self.start(page)
        page.wait(DONE)
        self.assertIn("seed 18446744073709551557", page.text("#status"))
        page.click("[name=search][value=samples]")
        page.run("document.querySelector('#more').open = true")
        page.type("#field-seed-all", "+0018446744073709551557")
        self.start(page, 'a "seed": "7"')
        page.wait(DONE)
        self.assertEqual(self.asked()["seed"], 18446744073709551557)
        self.assertEqual(self.asked()["prompt"], 'a "seed": "7"')

    def test_a_hypothesis_can_be_lit_alone(self):
        page = self.open()
        self.start(page)
        page.wait(DONE)
        page.focus("#list li:nth-child(2) button")
        page.press("Enter")
        self.assertEqual(
            page.run("[...document.querySelectorAll('#tree .lit text')]"
                     ".map((label) => label.textContent)"),
            ["The", "vine", "rests"])
        page.press("Enter")
        self.assertEqual(
            page.run("document.querySelectorAll('#tree .lit').length"), 0)

    def test_pages_come_from_the_trace(self):
        self.server.trace = TRACE
        page = self.open()
        self.start(page)
        page.wait("document.querySelectorAll('#map rect').length === 4")
        self.assertIn("held 3 pages; without sharing they would need 4",
                      page.text("#map-hint"))
        self.assertEqual(
            page.run("document.querySelectorAll('#map .copied').length"), 1)
        self.assertEqual(
            page.run("document.querySelectorAll('#map .cached').length"), 1)

    def test_without_traces_it_says_how_to_have_them(self):
        self.server.model["espalier"] = {"traces": False}
        page = self.open()
        self.start(page)
        page.wait(DONE)
        self.assertIn("--trace-requests", page.text("#map-hint"))
        self.assertTrue(page.run("document.querySelector('#map').hidden"))

    def test_only_a_trace_that_is_not_there_needs_another_server(self):
        for status, advises in {404: True, 401: False, 500: False}.items():
            with self.subTest(status):
                self.server.trace_refusal = (status, {"message": "No trace."})
                page = self.open()
                self.start(page)
                page.wait("document.querySelector('#map-hint').textContent"
                          ".includes('No trace.')")
                self.assertEqual("--trace-requests" in page.text("#map-hint"),
                                 advises)

    # --- Errors ------------------------------------------------------------

    def test_the_servers_limits_are_the_fields(self):
        self.server.model["espalier"] = {"traces": True, "max_num_beams": 3}
        page = self.open()
        self.start(page)  # 4 beams
        page.wait("!document.querySelector('#error').hidden")
        self.assertIn("to 3", page.text("#error"))

    def test_a_refusal_shows_and_focuses_its_field(self):
        for param, field in {"num_beams": "field-num_beams-beams",
                             "stop[1]": "field-stop-all",
                             "num_return_sequences": "field-n-beams",
                             "prompt": "prompt"}.items():
            with self.subTest(param):
                self.server.refusal = (400, {"message": "no good: <b>",
                                             "param": param})
                page = self.open()
                self.start(page)
                page.wait("!document.querySelector('#error').hidden")
                self.assertEqual(page.text("#error"), "no good: <b>")
                self.assertEqual(page.run("document.activeElement.id"), field)
                self.assertEqual(
                    page.run("document.activeElement.ariaInvalid"), "true")
                self.server.refusal = None
                self.start(page)
                page.wait(DONE)
                self.assertTrue(
                    page.run("document.querySelector('#error').hidden"))

    def test_wrong_values_are_told_before_anything_is_sent(self):
        for field, text in {"num_beams-beams": "four", "n-beams": "0",
                            "max_tokens-all": "1.5", "seed-all": "-",
                            "length_penalty-beams": "1e999"}.items():
            with self.subTest(field):
                page = self.open()
                page.run("document.querySelector('#more').open = true")
                page.type(f"#field-{field}", text)
                page.run("document.querySelector('#more').open = false")
                self.start(page)
                self.assertIn(text, page.text("#error"))
                self.assertEqual(page.run("document.activeElement.id"),
                                 f"field-{field}")
        page = self.open()
        self.start(page, "")
        self.assertEqual(page.text("#error"), "The prompt is empty.")
        self.assertEqual(self.server.requests, [])

    def test_an_error_within_a_stream_keeps_what_there_is(self):
        self.server.script = [*TWO_BEAMS[:2],
                              {"error": {"message": "The device is gone."}}]
        page = self.open()
        self.start(page)
        page.wait("!document.querySelector('#error').hidden")
        self.assertEqual(page.text("#error"), "The device is gone.")
        self.assertEqual(page.run(TEXTS), ["The vine", "The tree"])

    def test_samples_that_came_before_an_error_were_run(self):
        self.server.script = [choice_event(0, "The vine"),
                              {"error": {"message": "The device is gone."}}]
        page = self.open()
        self.start(page)
        page.wait("!document.querySelector('#error').hidden")
        self.assertEqual(page.text("#status"), "Ended by an error.")

    def test_a_stream_that_breaks_off_is_an_error(self):
        self.server.script = [TWO_BEAMS[0], "close"]
        page = self.open()
        self.start(page)
        page.wait("document.querySelector('#error').textContent"
                  ".includes('before the end')")
        self.server.script = TWO_BEAMS
        self.start(page)
        page.wait(DONE)

    def test_no_server_is_said(self):
        page = self.open()
        self.server.close()
        self.start(page)
        page.wait("document.querySelector('#error').textContent"
                  ".includes('cannot be reached')")

    def test_comments_and_split_events_are_read(self):
        event = json.dumps(TWO_BEAMS[0], ensure_ascii=False).encode()
        wide = "data: {\"choices\": [{\"index\": 0, \"text\": \"\u00e9\u2193\"," \
            " \"finish_reason\": \"stop\", \"token_ids\": [1]}]}\n\n".encode()
        at = wide.index("\u2193".encode()) + 1
        self.server.script = [b": ping\n\n", b"data: " + event[:9], 0.05,
                              event[9:] + b"\r\n\r\n", wide[:at], 0.05,
                              wide[at:]]
        page = self.open()
        self.start(page)
        page.wait(DONE)
        self.assertEqual(page.run(TEXTS), ["é↓"])

    def test_a_key_is_asked_for_and_sent(self):
        self.server.key = "secret"
        page = self.open()
        page.wait("document.activeElement.id === 'key'")
        page.type("#key", "wrong")
        page.press("Tab")
        page.wait("!document.querySelector('#error').hidden")
        page.type("#key", "secret")
        page.press("Tab")
        page.wait("document.querySelector('#model').textContent !== ''")
        self.start(page)
        page.wait(DONE)
        page.click("#curl")
        command = page.wait("document.querySelector('#command').value")
        self.assertNotIn("secret", command)
        self.assertIn("Bearer $API_KEY", command)

    # --- People ------------------------------------------------------------

    def test_stop_closes_the_connection(self):
        self.server.script = [TWO_BEAMS[0]] + [0.05, b": ping\n\n"] * 400
        page = self.open()
        self.start(page)
        page.wait("document.querySelectorAll('#list .text').length > 0")
        page.click("#stop")
        deadline = time.monotonic() + 10
        while self.server.num_dropped == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(self.server.num_dropped, 1)
        self.assertTrue(page.run("document.querySelector('#stop').disabled"))

    def test_the_tab_key_reaches_everything_that_can_be_used(self):
        page = self.open()
        self.start(page)
        page.wait(DONE)
        page.focus("#prompt")
        reached = []
        for _ in range(30):
            page.press("Tab")
            reached.append(page.run(
                "document.activeElement.id || document.activeElement.name || "
                "document.activeElement.closest('li, details')?.tagName"))
        for name in ("search", "field-num_beams-beams", "field-n-beams",
                     "field-early_stopping-beams", "run", "curl", "LI", "tree"):
            self.assertIn(name, reached)
        self.assertNotIn("stop", reached)  # there is nothing to stop
        self.assertLess(reached.index("run"), reached.index("LI"))

    def test_every_control_has_a_label(self):
        page = self.open()
        self.assertEqual(page.run(
            "[...document.querySelectorAll('input, select, textarea, button')]"
            ".filter((e) => !e.labels?.length && !e.ariaLabel && "
            "!e.textContent.trim()).map((e) => e.id)"), [])

    def test_narrow_screens_scroll_only_down(self):
        self.server.trace = TRACE
        long = "Donaudampfschifffahrtsgesellschaft" * 12
        self.server.script = [
            beams_event(1, beam(long, [1]), beam("A", [2])),
            *[beams_event(i, beam(f"{long} {i}", list(range(1, i + 1))))
              for i in range(2, 60)],
            choice_event(0, long, token_ids=[1], finish_reason="stop")]
        self.server.model["id"] = long
        for width in (320, 360, 700, 861, 1280):
            for scheme in ("light", "dark"):
                with self.subTest(width=width, scheme=scheme):
                    page = self.open(width=width, height=740, scheme=scheme)
                    page.run("document.querySelector('#more').open = true")
                    self.start(page, long)
                    page.wait("document.querySelectorAll('#map rect').length")
                    self.assertLessEqual(
                        page.run("document.documentElement.scrollWidth"), width)
                    self.save(page, f"long-{width}-{scheme}")

    def test_a_long_wide_search_is_drawn_as_far_as_there_is_room(self):
        for num_steps, drawn in ((200, 16 * 200), (450, 6000)):
            self.server.script = [
                beams_event(step, *[
                    beam(f"w{i} " * step, [i * 1000 + k for k in range(step)])
                    for i in range(16)])
                for step in range(1, num_steps + 1)]
            self.server.script.append(choice_event(
                0, "w0 ", token_ids=[0], finish_reason="stop"))
            page = self.open()
            self.start(page)
            page.wait(DONE, timeout=120)
            self.assertEqual(page.run(
                "document.querySelectorAll('#tree circle').length"), drawn + 1)
            self.assertEqual("too large" in page.text("#list-hint"),
                             drawn == 6000)


if __name__ == "__main__":
    PageTest.built = Path(sys.argv[1])
    if len(sys.argv) > 2:
        PageTest.screenshots = Path(sys.argv[2])
    if not find_chromium():
        print("no Chromium: the page is not tested", file=sys.stderr)
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])

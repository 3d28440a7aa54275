"""The page of a server with a speech model in headless Chromium, before a server
that says what a test wants; Chromium's microphone plays a file. Where there is no
Chromium, all of it is skipped, and says so.

    speech_page_test.py DIRECTORY [SCREENSHOTS]

DIRECTORY has page.html and page.cc, as they are built.
"""

import array
import io
import math
import shutil
import subprocess
import sys
import tempfile
import unittest
import wave
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from chromium import Chromium, find_chromium  # noqa: E402
from scripted_server import ScriptedServer, policy_of  # noqa: E402

HOSTILE = "<script>document.title='bad'</script><img src=x onerror=bad()>"
DONE = "document.querySelector('#status').textContent.startsWith('Done')"
WORDS = ("[...document.querySelectorAll('#transcript .word')]"
         ".map((word) => word.textContent)")
ERROR = "!document.querySelector('#error').hidden"
# The microphone is given when `allows` are called, to one who asks each.
ASKING = """(() => {
    const media = navigator.mediaDevices;
    const get = media.getUserMedia.bind(media);
    window.allows = [];
    window.tracks = [];
    media.getUserMedia = async (...all) => {
      await new Promise((allow) => { allows.push(allow); });
      const stream = await get(...all);
      tracks.push(...stream.getTracks());
      return stream;
    };})()"""
# A recording ends when `release` is called.
ENDING = """(() => {
    const offline = OfflineAudioContext.prototype;
    const render = offline.startRendering;
    offline.startRendering = async function () {
      await new Promise((release) => { window.release = release; });
      return render.call(this);
    };})()"""
TONE = 1000  # Hz
LEVEL = 0.5


def write_tone(path: Path):
    """A second of a tone, of another rate than the page sends."""
    rate = 44100
    samples = array.array("h", (
        round(32767 * LEVEL * math.sin(2 * math.pi * TONE * i / rate))
        for i in range(rate)))
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(samples.tobytes())


def delta(text: str, start: float, end: float, *words: tuple[str, float]) -> dict:
    segment = {"id": 0, "start": start, "end": end}
    if words:
        width = (end - start) / len(words)
        segment["words"] = [
            {"word": word, "probability": probability,
             "start": start + i * width, "end": start + (i + 1) * width}
            for i, (word, probability) in enumerate(words)]
    return {"type": "transcript.text.delta", "delta": text, "segment": segment}


FIRST = delta("And so, my", 0, 1.5, (" And", 0.98), (" so,", 0.4), (" my", 0.05))
SECOND = delta(" fellow", 61.25, 62, (" fellow", 0.75))
END = {"type": "transcript.text.done", "text": "And so, my fellow",
       "usage": {"type": "duration", "seconds": 62.5}}


@unittest.skipUnless(find_chromium(), "no Chromium: install it to test the page")
class SpeechPageTest(unittest.TestCase):
    built: Path
    screenshots: Path | None = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.audio = Path(folder.name) / "tone.wav"
        write_tone(cls.audio)
        cls.browser = cls.launch(
            "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream",
            f"--use-file-for-fake-audio-capture={cls.audio}")

    @classmethod
    def launch(cls, *flags):
        browser = Chromium(*flags)
        cls.addClassCleanup(browser.close)
        return browser

    def setUp(self):
        self.server = ScriptedServer(
            (self.built / "page.html").read_text(),
            policy_of((self.built / "page.cc").read_text()))
        self.server.model["espalier"] = {
            "task": "transcribe", "words": True, "translates": True,
            "max_num_beams": 64, "max_audio_seconds": 14400,
            "max_audio_bytes": 25 << 20}
        self.server.script = [FIRST, SECOND, END]
        self.addCleanup(self.server.close)

    def open(self, browser=None, url=None, **view):
        page = (browser or self.browser).open(url or self.server.url, **view)
        self.addCleanup(page.close)
        self.addCleanup(lambda: self.assertEqual(page.faults(), []))
        page.wait("document.querySelector('#model').textContent !== ''")
        return page

    def asked(self) -> dict:
        return self.server.requests[-1][1]

    def save(self, page, name):
        if self.screenshots:
            page.save_screenshot(self.screenshots / f"{name}.png")

    def transcribe(self, page):
        page.choose_file("#audio", self.audio)
        page.click("#run")
        page.wait(DONE)

    def is_disabled(self, page, *ids: str) -> list[bool]:
        return [page.run(f"document.querySelector('#{id}').disabled")
                for id in ids]

    def record(self, page, at_least: str):
        page.click("#record")
        page.wait(f"document.querySelector('#recorded').textContent >= '{at_least}'")

    # --- Files -------------------------------------------------------------

    def test_a_file_is_sent_as_it_is_with_what_was_asked_for(self):
        page = self.open()
        self.transcribe(page)
        path, fields = self.server.requests[-1]
        self.assertEqual(path, "/v1/audio/transcriptions")
        self.assertEqual(fields, {
            "model": "scripted", "word_timestamps": "true", "stream": "true",
            "file": self.audio.read_bytes()})
        page.click("[name=task][value=translations]")
        page.type("#speech-language", " French ")
        page.type("#speech-num_beams", "3")
        page.type("#speech-prompt", "Zoë")
        page.press("Enter", control=True)
        page.wait(DONE)
        path, fields = self.server.requests[-1]
        self.assertEqual(path, "/v1/audio/translations")
        self.assertEqual(list(fields.items())[1:4], [
            ("language", "French"), ("prompt", "Zoë"), ("num_beams", "3")])

    def test_a_model_without_times_of_words_or_translation_is_not_asked(self):
        self.server.model["espalier"] |= {"words": False, "translates": False}
        self.server.script = [delta("And so", 0, 1.5), END]
        page = self.open()
        self.assertTrue(page.run("document.querySelector('#task').hidden"))
        self.transcribe(page)
        self.assertNotIn("word_timestamps", self.asked())
        self.assertEqual(page.text("#transcript li .text"), "And so")

    def test_without_audio_nothing_is_sent(self):
        page = self.open()
        page.press("Enter", control=True)
        self.assertIn("Choose a file", page.text("#error"))
        self.assertEqual(page.run("document.activeElement.id"), "audio")
        page.choose_file("#audio", self.audio)
        page.type("#speech-num_beams", "none")
        page.click("#run")
        self.assertIn("none", page.text("#error"))
        self.assertEqual(page.run("document.activeElement.id"),
                         "speech-num_beams")
        self.assertEqual(self.server.requests, [])

    def test_a_refusal_shows_and_focuses_its_field(self):
        page = self.open()
        page.choose_file("#audio", self.audio)
        for param, control in (("language", "speech-language"),
                               ("prompt", "speech-prompt"), ("file", "audio")):
            self.server.refusal = (400, {"message": HOSTILE, "param": param})
            page.click("#run")
            page.wait(f"document.activeElement.id === '{control}'")
            self.assertEqual(page.text("#error"), HOSTILE)
            self.assertEqual(page.text("#status"), "Request failed.")

    def test_curl_is_the_same_request(self):
        page = self.open()
        page.choose_file("#audio", self.audio)
        page.type("#speech-prompt", "It's")
        page.click("#curl")
        command = page.wait("document.querySelector('#command').value")
        self.assertEqual(command.replace(" \\\n  ", " "), (
            f"curl -N '{self.server.url}v1/audio/transcriptions' "
            "--form-string 'model=scripted' --form-string 'prompt=It'\\''s' "
            "--form-string 'word_timestamps=true' --form-string 'stream=true' "
            "-F 'file=@\"tone.wav\"'"))

    @unittest.skipUnless(shutil.which("curl"), "no curl")
    def test_curl_sends_one_file_whatever_its_name_is(self):
        page = self.open()
        for name in ('a","b.wav', "a\\.wav", "a;type=b,c 'd'.wav"):
            path = self.audio.with_name(name)
            path.write_bytes(self.audio.read_bytes())
            page.choose_file("#audio", path)
            page.click("#curl")
            command = page.run("document.querySelector('#command').value")
            subprocess.run(["bash", "-c", command], cwd=path.parent, check=True,
                           capture_output=True)
            self.assertEqual(self.asked()["file"], self.audio.read_bytes(), name)

    def test_a_file_above_the_limit_is_not_sent(self):
        limit = self.audio.stat().st_size
        for extra, requests in ((-1, 0), (0, 1)):
            self.server.model["espalier"]["max_audio_bytes"] = limit + extra
            page = self.open()
            page.choose_file("#audio", self.audio)
            page.click("#run")
            page.wait(DONE if requests else ERROR)
            self.assertEqual(len(self.server.requests), requests)

    def test_an_empty_field_of_beams_has_the_servers_default(self):
        for limit, default in ((64, 5), (3, 3)):
            self.server.model["espalier"]["max_num_beams"] = limit
            page = self.open()
            self.assertEqual(page.wait(
                "document.querySelector('#speech-num_beams').placeholder"),
                f"default {default}")

    # --- Transcripts -------------------------------------------------------

    def test_words_are_the_darker_the_less_likely_they_are(self):
        page = self.open()
        self.transcribe(page)
        self.assertEqual(page.run(WORDS), ["And", "so,", "my", "fellow"])
        self.assertEqual(page.text("#transcript li .text"), "And so, my")
        self.assertEqual(page.run(
            "[...document.querySelectorAll('#transcript .time')]"
            ".map((time) => time.textContent)"), ["0:00.0", "1:01.3"])
        self.assertEqual(page.run(
            "[...document.querySelectorAll('.word')].map((w) => w.title)"), [
                "98 %, 0:00.00–0:00.50", "40 %, 0:00.50–0:01.00",
                "5 %, 0:01.00–0:01.50", "75 %, 1:01.25–1:02.00"])
        alphas = page.run(
            "[...document.querySelectorAll('.word')].map((w) => Number("
            "getComputedStyle(w).backgroundColor.match(/([\\d.]+)\\)$/)[1]))")
        self.assertEqual(sorted(alphas), [alphas[i] for i in (0, 3, 1, 2)])
        page.click(".word")
        self.assertEqual(page.text("#word-note"), "“And”: 98 %, 0:00.00–0:00.50")
        self.assertLess(alphas[0], 0.05)
        self.assertGreater(alphas[2], 0.9)
        self.assertRegex(page.text("#status"),
                         r"^Done in .* · 1:02\.5 of audio · 2 segments\.$")
        self.assertFalse(page.run(
            "document.querySelector('#tree').checkVisibility()"))
        self.save(page, "transcript")

    def test_arrows_go_from_word_to_word(self):
        page = self.open()
        self.transcribe(page)
        page.focus("#transcript")
        for key, word in (("ArrowRight", "And"), ("ArrowRight", "so,"),
                          ("ArrowRight", "my"), ("ArrowRight", "fellow"),
                          ("ArrowRight", "fellow"), ("ArrowLeft", "my")):
            page.press(key)
            self.assertIn(f"“{word}”:", page.text("#word-note"))

    def test_the_least_likely_word_is_readable(self):
        for scheme in ("light", "dark"):
            page = self.open(scheme=scheme)
            self.transcribe(page)
            contrast = page.run("""(() => {
                const canvas = document.createElement("canvas")
                  .getContext("2d");
                const luminance = (color) => {
                  canvas.fillStyle = color;
                  canvas.fillRect(0, 0, 1, 1);
                  const parts = [...canvas.getImageData(0, 0, 1, 1).data]
                    .slice(0, 3).map((part) => part / 255)
                    .map((c) => c <= 0.04045 ? c / 12.92
                                             : ((c + 0.055) / 1.055) ** 2.4);
                  return 0.2126 * parts[0] + 0.7152 * parts[1] +
                         0.0722 * parts[2];
                };
                const word = document.querySelector(".word");
                word.style.setProperty("--doubt", 1);
                const {color, backgroundColor} = getComputedStyle(word);
                const [a, b] = [luminance(color), luminance(backgroundColor)];
                return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
                })()""")
            self.assertGreaterEqual(contrast, 4.5, scheme)
            self.save(page, f"words-{scheme}")

    def test_segments_are_shown_as_they_end(self):
        self.server.script = [FIRST, 60]
        page = self.open()
        page.choose_file("#audio", self.audio)
        page.click("#run")
        page.wait(f"{WORDS}.length === 3")
        page.wait("document.querySelector('#status').textContent"
                  ".includes('0:02 transcribed')")
        self.assertTrue(page.run("document.querySelector('#record').disabled"))
        page.press("Escape")
        page.wait("document.querySelector('#status').textContent === 'Stopped.'")
        self.assertEqual(len(page.run(WORDS)), 3)

    def test_an_error_within_a_stream_keeps_what_there_is(self):
        for script in ([FIRST, {"error": {"message": "The device is gone."}}],
                       [FIRST]):
            self.server.script = script
            page = self.open()
            page.choose_file("#audio", self.audio)
            page.click("#run")
            page.wait(ERROR)
            self.assertEqual(page.text("#status"), "Ended by an error.")
            self.assertEqual(len(page.run(WORDS)), 3)

    def test_nothing_of_the_last_transcript_stays(self):
        page = self.open()
        self.transcribe(page)
        hint = page.text("#word-note")
        page.click(".word")
        self.assertNotEqual(page.text("#word-note"), hint)
        self.server.script = [END]
        page.click("#run")
        page.wait(f"{WORDS}.length === 0 && {DONE}")
        self.assertEqual(page.text("#transcript"), "No speech was found.")
        self.assertEqual(page.text("#word-note"), hint)

    def test_markup_in_words_stays_text(self):
        self.server.script = [delta(HOSTILE, 0, 1, (HOSTILE, 0.5)), END]
        page = self.open()
        self.transcribe(page)
        self.assertEqual(page.run(WORDS), [HOSTILE])
        self.assertEqual(page.run("document.querySelectorAll('img').length"), 0)

    # --- Microphone --------------------------------------------------------

    def test_a_recording_is_sent_as_a_file_of_16_khz(self):
        page = self.open()
        self.record(page, "0:02")
        self.assertGreater(page.wait("document.querySelector('#level').value"),
                           0.5 * LEVEL)
        self.save(page, "recording")
        page.click("#record")
        page.wait(DONE)
        with wave.open(io.BytesIO(self.asked()["file"])) as file:
            self.assertEqual((file.getnchannels(), file.getsampwidth(),
                              file.getframerate()), (1, 2, 16000))
            samples = array.array("h", file.readframes(file.getnframes()))
        self.assertEqual(len(samples), file.getnframes())
        self.assertAlmostEqual(len(samples) / 16000, 2.5, delta=1)
        # Half a second within the tone: its power is at its frequency.
        part = [sample / 32768 for sample in samples[16000:24000]]
        power = sum(x * x for x in part) / len(part)
        sums = [sum(x * f(2 * math.pi * TONE * i / 16000)
                    for i, x in enumerate(part)) for f in (math.sin, math.cos)]
        at_tone = 2 * (sums[0] ** 2 + sums[1] ** 2) / len(part) ** 2
        self.assertGreater(power, 0.01)
        self.assertGreater(at_tone / power, 0.9)
        self.assertRegex(page.text("#recorded"), r"^Recording of 0:0\d$")
        # It may be sent again.
        page.type("#speech-language", "de")
        page.press("Enter", control=True)
        page.wait("document.querySelector('#run').disabled === false")
        self.assertEqual([fields["file"] == self.asked()["file"]
                          for _, fields in self.server.requests], [True, True])
        # A file takes its place.
        self.transcribe(page)
        self.assertEqual(self.asked()["file"], self.audio.read_bytes())
        self.assertTrue(page.run("document.querySelector('#save-audio').hidden"))

    def test_run_ends_a_recording_and_escape_discards_it(self):
        page = self.open()
        self.record(page, "0:01")
        page.press("Escape")
        self.assertEqual(page.text("#status"), "Discarded the recording.")
        self.assertEqual(page.text("#record"), "Record")
        self.assertEqual(self.server.requests, [])
        self.record(page, "0:01")
        page.press("Enter", control=True)
        page.wait(DONE)
        self.assertEqual(len(self.server.requests), 1)

    def test_a_recording_ends_at_the_limit_of_the_server(self):
        for limit in ({"max_audio_seconds": 1}, {"max_audio_bytes": 32044}):
            with self.subTest(limit):
                self.server.model["espalier"] |= limit
                page = self.open()
                page.click("#record")
                page.wait(DONE)
                self.assertLessEqual(len(self.asked()["file"]), 32044)
                self.assertGreater(len(self.asked()["file"]), 32000)

    def test_nothing_else_begins_while_a_recording_ends(self):
        page = self.open()
        page.run(ENDING)
        page.choose_file("#audio", self.audio)
        self.record(page, "0:01")
        page.press("Enter", control=True)
        page.wait("window.release !== undefined")
        page.press("Enter", control=True)
        page.click("#record")
        self.assertEqual(
            self.is_disabled(page, "run", "record", "audio", "curl", "stop"),
            [True, True, True, True, False])
        self.assertEqual(self.server.requests, [])
        page.run("release()")
        page.wait(DONE)
        self.assertEqual(len(self.server.requests), 1)
        self.assertNotEqual(self.asked()["file"], self.audio.read_bytes())
        self.assertEqual(
            self.is_disabled(page, "run", "record", "audio", "curl", "stop"),
            [False, False, False, False, True])

    def test_escape_discards_a_recording_that_ends(self):
        page = self.open()
        page.run(ENDING)
        self.record(page, "0:01")
        page.click("#record")
        page.wait("window.release !== undefined")
        page.press("Escape")
        self.assertEqual(page.text("#status"), "Discarded the recording.")
        page.run("release()")
        # What ended it would have been done before another recording is.
        page.run("release = undefined")
        self.record(page, "0:01")
        page.click("#record")
        page.wait("window.release !== undefined")
        page.run("release()")
        page.wait(DONE)
        self.assertEqual(len(self.server.requests), 1)

    def test_a_recording_that_cannot_be_converted_leaves_the_page_as_it_was(self):
        page = self.open()
        page.choose_file("#audio", self.audio)
        self.record(page, "0:01")
        page.run("OfflineAudioContext.prototype.startRendering = "
                 "async () => { throw new Error('too long'); }")
        page.click("#record")
        page.wait(ERROR)
        self.assertEqual(page.text("#error"),
                         "The recording cannot be converted: too long")
        self.assertEqual(page.text("#status"), "The recording has ended.")
        self.assertEqual(self.is_disabled(page, "run", "record", "stop"),
                         [False, False, True])
        self.transcribe(page)
        self.assertEqual(self.asked()["file"], self.audio.read_bytes())

    def test_a_recording_ends_also_where_the_form_is_invalid(self):
        page = self.open()
        page.type("#speech-num_beams", "none")
        self.record(page, "0:01")
        page.click("#record")
        page.wait(ERROR)
        self.assertIn("none", page.text("#error"))
        self.assertEqual(page.text("#status"), "The recording has ended.")
        self.assertRegex(page.text("#recorded"), "^Recording of ")
        # A chooser that is left without a file keeps it.
        page.run("document.querySelector('#audio')"
                 ".dispatchEvent(new Event('change'))")
        page.type("#speech-num_beams", "")
        page.click("#run")
        page.wait(DONE)
        self.assertEqual(len(self.server.requests), 1)

    def test_a_key_that_is_held_runs_once(self):
        page = self.open()
        page.choose_file("#audio", self.audio)
        page.run("document.dispatchEvent(new KeyboardEvent('keydown', "
                 "{key: 'Enter', ctrlKey: true, repeat: true}))")
        self.assertFalse(page.run("document.querySelector('#run').disabled"))
        self.assertEqual(self.server.requests, [])

    def test_one_microphone_is_open_at_most(self):
        page = self.open()
        page.run(ASKING)
        page.choose_file("#audio", self.audio)
        page.click("#record")
        page.wait("allows.length === 1")
        self.assertEqual(self.is_disabled(page, "record"), [True])
        page.click("#run")
        page.wait(DONE)
        page.click("#record")
        page.wait("allows.length === 2")
        page.run("allows[0]()")
        page.wait("tracks.length === 1 && tracks[0].readyState === 'ended'")
        page.run("allows[1]()")
        page.wait("document.querySelector('#recorded').textContent >= '0:01'")
        self.assertEqual(page.run("tracks.map((track) => track.readyState)"),
                         ["ended", "live"])
        page.press("Escape")
        self.assertEqual(page.run("tracks.map((track) => track.readyState)"),
                         ["ended", "ended"])
        self.assertEqual(page.text("#record"), "Record")

    def test_a_microphone_that_goes_before_the_recording_is_said(self):
        page = self.open()
        page.run(ASKING)
        page.run("""(() => {
            const resume = AudioContext.prototype.resume;
            AudioContext.prototype.resume = async function () {
              await resume.call(this);
              tracks[0].stop();
            };})()""")
        page.click("#record")
        page.wait("allows.length === 1")
        page.run("allows[0]()")
        page.wait(ERROR)
        self.assertIn("The microphone cannot be used", page.text("#error"))
        self.assertEqual(self.is_disabled(page, "record", "stop"),
                         [False, True])

    def test_pages_from_elsewhere_say_that_they_get_no_microphone(self):
        browser = self.launch("--host-resolver-rules=MAP other.example 127.0.0.1",
                              "--use-fake-ui-for-media-stream",
                              "--use-fake-device-for-media-stream")
        page = self.open(browser, self.server.url.replace("127.0.0.1",
                                                          "other.example"))
        page.click("#record")
        page.wait(ERROR)
        self.assertIn("only to pages from https or from localhost",
                      page.text("#error"))
        self.assertEqual(page.text("#record"), "Record")
        self.transcribe(page)

    def test_a_refused_and_a_missing_microphone_are_said(self):
        browser = self.launch("--use-fake-device-for-media-stream")
        browser.call("Browser.setPermission", setting="denied",
                     permission={"name": "microphone"},
                     origin=self.server.url.rstrip("/"))
        page = self.open(browser)
        page.click("#record")
        page.wait(ERROR)
        self.assertIn("does not let this page use the microphone",
                      page.text("#error"))
        page = self.open(self.launch("--use-fake-ui-for-media-stream"))
        page.click("#record")
        page.wait(ERROR)
        self.assertIn("No microphone was found", page.text("#error"))
        self.assertFalse(page.run("document.querySelector('#record').disabled"))

    def test_a_microphone_that_goes_ends_the_recording(self):
        page = self.open()
        page.run("""(() => {
            const media = navigator.mediaDevices;
            const get = media.getUserMedia.bind(media);
            media.getUserMedia = async (...all) => {
              const stream = await get(...all);
              window.lose = () => {
                const [track] = stream.getTracks();
                track.stop();
                track.dispatchEvent(new Event("ended"));
              };
              return stream;
            };})()""")
        self.record(page, "0:01")
        page.run("lose()")
        page.wait(DONE)
        self.assertEqual(len(self.server.requests), 1)

    def test_a_file_that_is_sent_meanwhile_takes_precedence(self):
        self.server.script = [FIRST, 60]
        page = self.open()
        page.run("""(() => {
            const media = navigator.mediaDevices;
            const get = media.getUserMedia.bind(media);
            media.getUserMedia = async (...all) => {
              await new Promise((allow) => { window.allow = allow; });
              const stream = await get(...all);
              [window.track] = stream.getTracks();
              return stream;
            };})()""")
        page.click("#record")
        page.choose_file("#audio", self.audio)
        page.click("#run")
        page.wait(f"{WORDS}.length === 3")
        page.run("allow()")
        page.wait("window.track?.readyState === 'ended'")
        page.press("Escape")
        page.wait("document.querySelector('#status').textContent === 'Stopped.'")
        self.assertEqual(page.text("#record"), "Record")
        self.assertFalse(page.run("document.querySelector('#record').disabled"))

    # --- People ------------------------------------------------------------

    def test_controls_have_labels_and_fit_fingers_and_screens(self):
        page = self.open(width=390, height=800)
        self.transcribe(page)
        self.assertEqual(page.run(
            "[...document.querySelectorAll('input, select, textarea, button, "
            "meter')].filter((e) => !e.labels?.length && !e.ariaLabel && "
            "!e.textContent.trim()).map((e) => e.id)"), [])
        self.assertEqual(page.run("""[...document.querySelectorAll(
            "main :is(button, .switch label), " +
            "main input:not([type=checkbox], [type=radio])")]
          .filter((control) => control.offsetParent !== null)
          .filter((control) => control.offsetHeight < 44 ||
            parseFloat(getComputedStyle(control).fontSize) < 16)
          .map((control) => control.id || control.outerHTML.slice(0, 80))"""), [])
        self.save(page, "phone")
        long = "Donaudampfschifffahrtsgesellschaft" * 12
        self.server.script = [delta(long, 0, 1, (long, 0.5)), END]
        for width in (320, 700, 1280):
            page = self.open(width=width, height=740)
            self.transcribe(page)
            self.record(page, "0:01")
            self.assertLessEqual(
                page.run("document.documentElement.scrollWidth"), width)
            page.press("Escape")

    def test_a_model_of_texts_has_no_recorder(self):
        self.server.model["espalier"] = {"task": "generate"}
        page = self.open()
        self.assertFalse(page.run(
            "document.querySelector('#record').checkVisibility()"))
        self.assertTrue(page.run(
            "document.querySelector('#prompt').checkVisibility()"))


if __name__ == "__main__":
    SpeechPageTest.built = Path(sys.argv[1])
    if len(sys.argv) > 2:
        SpeechPageTest.screenshots = Path(sys.argv[2])
    if not find_chromium():
        print("no Chromium: the page is not tested", file=sys.stderr)
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])

"""The page of a running server with a speech model, in headless Chromium whose
microphone plays a file: the words that it shows are those of the API. Where the
server takes no file as long, a recording ends by itself, and the server takes it.

    speech_page_client.py URL AUDIO [SCREENSHOT]

AUDIO is a WAV file of less than a minute. SCREENSHOT is a file of the picture in
docs/server_page.md, which is of examples/speech/jfk.wav.
speech_calls_test.cc runs it. Where there is no Chromium all of it is skipped (77).
"""

import json
import math
import sys
import urllib.request
import wave
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from chromium import Chromium, find_chromium  # noqa: E402

DONE = "document.querySelector('#status').textContent.startsWith('Done')"
RECORDED = ("document.querySelector('#recorded').textContent"
            ".startsWith('Recording')")
IS_RUNNING = "document.querySelector('#results').classList.contains('running')"
PATIENCE = 240  # seconds: the server may run under a sanitizer
WORDS = ("[...document.querySelectorAll('#transcript .word')]"
         ".map((word) => [word.textContent, word.title.split(',')[0]])")


def words_of(url: str, audio: bytes) -> list[list[str]]:
    """What the API hears, as the page shows it."""
    fields = {"word_timestamps": "true", "response_format": "verbose_json"}
    form = b"".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}'
        "\r\n".encode() for name, value in fields.items())
    form += (b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"'
             b"\r\n\r\n" + audio + b"\r\n--b--\r\n")
    request = urllib.request.Request(
        f"{url}/v1/audio/transcriptions", form,
        {"Content-Type": "multipart/form-data; boundary=b"})
    with urllib.request.urlopen(request) as answer:
        segments = json.load(answer)["segments"]
    return [[word["word"].lstrip(), f"{100 * word['probability']:.0f} %"]
            for segment in segments for word in segment["words"]]


def takes(url: str, audio: Path, seconds: float) -> bool:
    with urllib.request.urlopen(f"{url}/v1/models") as answer:
        limits = json.load(answer)["data"][0]["espalier"]
    return (seconds <= limits["max_audio_seconds"] and
            audio.stat().st_size <= limits["max_audio_bytes"])


def check_words(page, url: str, audio: Path, seconds: float):
    page.choose_file("#audio", audio)
    page.click("#run")
    page.wait(DONE, PATIENCE)
    shown, heard = page.run(WORDS), words_of(url, audio.read_bytes())
    assert shown == heard and shown, (shown, heard)
    page.click("#record")
    page.wait("document.querySelector('#recorded').textContent >= "
              f"'0:{math.floor(seconds):02}'")
    page.click("#record")
    page.wait(RECORDED)
    page.wait(DONE, PATIENCE)
    assert page.run(WORDS), page.text("#results")


def check_limit(page):
    page.click("#record")
    page.wait(RECORDED, PATIENCE)
    page.wait(f"!{IS_RUNNING}", PATIENCE)
    assert page.run(DONE), page.text("#results")


def main() -> int:
    if not find_chromium():
        print("skipped: no Chromium")
        return 77
    url, audio = sys.argv[1], Path(sys.argv[2]).resolve()
    with wave.open(str(audio)) as file:
        seconds = file.getnframes() / file.getframerate()
    with Chromium("--use-fake-ui-for-media-stream",
                  "--use-fake-device-for-media-stream",
                  f"--use-file-for-fake-audio-capture={audio}") as browser:
        page = browser.open(f"{url}/", width=1120, height=400)
        page.wait("document.querySelector('#model').textContent !== ''")
        if takes(url, audio, seconds):
            check_words(page, url, audio, seconds)
        else:
            check_limit(page)
        if len(sys.argv) > 3:
            page.save_screenshot(Path(sys.argv[3]), whole=True)
        assert page.faults() == [], page.faults()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The page of a running server with a speech model, in headless Chromium whose
microphone plays a file: the words that it shows are those of the API.

    speech_page_client.py URL AUDIO [SCREENSHOT]

AUDIO is a WAV file of less than a minute. SCREENSHOT is a file of the picture in
docs/server_page.md, which is of examples/speech/jfk.wav.
speech_calls_test.cc runs it. Where there is no Chromium all of it is skipped (77).
"""

import json
import sys
import urllib.request
import wave
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from chromium import Chromium, find_chromium  # noqa: E402

DONE = "document.querySelector('#status').textContent.startsWith('Done')"
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


def main() -> int:
    if not find_chromium():
        print("skipped: no Chromium")
        return 77
    url, audio = sys.argv[1], Path(sys.argv[2]).resolve()
    with Chromium("--use-fake-ui-for-media-stream",
                  "--use-fake-device-for-media-stream",
                  f"--use-file-for-fake-audio-capture={audio}") as browser:
        page = browser.open(f"{url}/", width=1120, height=400)
        page.wait("document.querySelector('#model').textContent !== ''")
        page.choose_file("#audio", audio)
        page.click("#run")
        page.wait(DONE, PATIENCE)
        shown, heard = page.run(WORDS), words_of(url, audio.read_bytes())
        assert shown == heard and shown, (shown, heard)
        page.click("#record")
        with wave.open(str(audio)) as file:
            seconds = file.getnframes() // file.getframerate()
        page.wait("document.querySelector('#recorded').textContent >= "
                  f"'0:{seconds:02}'")
        page.click("#record")
        page.wait("document.querySelector('#recorded').textContent"
                  ".startsWith('Recording')")
        page.wait(DONE, PATIENCE)
        assert page.run(WORDS), page.text("#results")
        if len(sys.argv) > 3:
            page.save_screenshot(Path(sys.argv[3]), whole=True)
        assert page.faults() == [], page.faults()
    return 0


if __name__ == "__main__":
    sys.exit(main())

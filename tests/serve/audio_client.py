#!/usr/bin/env python3
"""Asks a running server of a Whisper model as programs do: by the official client
of OpenAI's API.

    pip install openai
    tests/serve/audio_client.py URL AUDIO

The audio has three seconds. speech_calls_test.cc runs it. Where there is no client
all of it is skipped (77).
"""

import sys
import traceback
from pathlib import Path

try:
    from openai import BadRequestError, NotFoundError, OpenAI
except ImportError:
    print("skipped: no module openai")
    sys.exit(77)


class Server:
    def __init__(self, url: str, audio: Path):
        self.client = OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        self.model = self.client.models.list().data[0].id
        self.audio = audio

    def transcribe(self, **fields):
        return self.client.audio.transcriptions.create(
            **{"model": self.model, "file": self.audio, **fields})


def refused(error: type, param: str, call):
    """Checks that `call` raises `error`, of this field."""
    try:
        call()
    except error as raised:
        assert raised.param == param, raised.body
        return
    raise AssertionError(f"no {error.__name__} of {param}")


def check_formats(server: Server):
    answer = server.transcribe()
    assert answer.text and answer.usage.type == "duration"
    assert answer.usage.seconds == 3
    assert server.transcribe(response_format="text") == answer.text + "\n"
    srt = server.transcribe(response_format="srt")
    assert srt.startswith("1\n00:00:0") and " --> " in srt
    assert server.transcribe(response_format="vtt").startswith("WEBVTT\n\n")
    verbose = server.transcribe(response_format="verbose_json",
                                timestamp_granularities=["segment"])
    assert verbose.duration == 3 and verbose.language.isalpha()
    assert verbose.segments and verbose.text == answer.text
    assert all(s.start <= s.end <= 3 and s.tokens for s in verbose.segments)
    words = server.transcribe(response_format="verbose_json",
                              timestamp_granularities=["word"])
    assert words.words and words.segments is None
    assert all(w.word and 0 <= w.start <= w.end for w in words.words)


def check_stream(server: Server):
    events = list(server.transcribe(stream=True))
    assert events[-1].type == "transcript.text.done"
    assert all(e.type == "transcript.text.delta" for e in events[:-1])
    assert events[-1].text == "".join(e.delta for e in events[:-1])
    assert events[-1].text == server.transcribe().text


def check_options(server: Server):
    answer = server.transcribe(
        language="de", prompt="the talk", temperature=0.5,
        response_format="verbose_json",
        extra_body={"best_of": 2, "seed": 7, "suppress_tokens": [-1, 7]})
    assert answer.language == "german"
    assert answer.segments[0].temperature == 0.5


def check_translation(server: Server):
    answer = server.client.audio.translations.create(
        model=server.model, file=server.audio, response_format="verbose_json")
    assert answer.text and answer.segments


def check_refusals(server: Server):
    broken = ("a.wav", b"nothing")
    for error, param, fields in [
            (BadRequestError, "file", {"file": broken}),
            (BadRequestError, "file", {"file": broken, "stream": True}),
            (BadRequestError, "include[]", {"include": ["logprobs"]}),
            (BadRequestError, "timestamp_granularities[]",
             {"response_format": "verbose_json",
              "timestamp_granularities": ["letter"]}),
            (NotFoundError, "model", {"model": "whisper-1"})]:
        refused(error, param, lambda: server.transcribe(**fields))


def main() -> int:
    server = Server(sys.argv[1], Path(sys.argv[2]))
    failed = 0
    for name, check in list(globals().items()):
        if not name.startswith("check_"):
            continue
        try:
            check(server)
            print("ok    ", name)
        except Exception:  # whatever it is, the others run
            failed += 1
            print("failed", name)
            traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

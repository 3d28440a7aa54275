"""Transcriber: what the program says of the same audio, audio of every kind,
errors by their fields, and the ends of calls and processes."""

import array
import asyncio
import dataclasses
import io
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import wave

import pytest

import espalier
from conftest import MODEL, SOURCE
from espalier.transcriber import TranscribeOptions
from speech import samples_of, wav_of, write_tone_network, write_whisper

SAMPLES = samples_of(6.4)
# Windows that are never silent, so that there is something to compare.
HEARD = {"no_speech_threshold": None}
GREEDY = {"num_beams": 1, "temperature": 0, **HEARD}
# Take far longer than a test: each window is decoded at all temperatures.
TALK = 10 * samples_of(6)
LONG = {"temperature": [0] + 60 * [1], "compression_ratio_threshold": 0, **HEARD}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Directories of models, and files."""
    made = tmp_path_factory.mktemp("speech")
    for name in ("whisper", "english"):
        (made / name).mkdir()
        write_whisper(made / name, is_multilingual=name == "whisper")
    write_tone_network(made / "vad.safetensors")
    (made / "talk.wav").write_bytes(wav_of(SAMPLES))
    return made


@pytest.fixture(scope="module")
def transcriber(files):
    with espalier.Transcriber(
        files / "whisper", num_threads=1, vad_model=files / "vad.safetensors"
    ) as made:
        yield made


@pytest.fixture(scope="module")
def program():
    path = os.environ.get("ESPALIER_PROGRAM", SOURCE / "build/release/bin/espalier")
    if not os.path.exists(path):
        pytest.skip("the program is not built")
    return str(path)


def plain(transcript):
    """A transcript as the program's JSON, which leaves out what is not there."""

    def without(fields):
        return {name: value for name, value in fields if value is not None}

    fields = dataclasses.asdict(transcript, dict_factory=without)
    if not fields["windows"]:
        del fields["windows"]
    return fields


def flags_of(options):
    """Options of the program, which tries others after one temperature."""
    options = dict(options)
    flags = []
    if options.pop("vad_filter", False):
        flags.append("--vad-model=vad.safetensors")
    if not isinstance(options.get("temperature", []), list):
        options["temperature_increment_on_fallback"] = None
    for name, value in options.items():
        if isinstance(value, list):
            value = ",".join(map(str, value)) or None
        if value != "":
            flags.append(f"--{name.replace('_', '-')}={value}")
    return flags


def draw_options(rng):
    options = {
        "num_beams": rng.choice([1, 2, 5]),
        "temperature": rng.choice([0, 0.7, [0, 0.5], [0, 0.2, 1]]),
        "best_of": rng.randint(1, 4),
        "seed": rng.randint(0, 9),
        "length_penalty": rng.choice([1, 0.5]),
        "patience": rng.choice([1, 2]),
        "no_speech_threshold": rng.choice([None, 0.9]),
        "word_timestamps": rng.random() < 0.5,
        "without_timestamps": rng.random() < 0.2,
        "num_alternatives": rng.choice([0, 1]),
        "language": rng.choice(["en", "German", ""]),
        "task": rng.choice(["transcribe", "translate"]),
        "multilingual": rng.random() < 0.3,
        "condition_on_previous_text": rng.random() < 0.7,
        "suppress_tokens": rng.choice([[-1], [], [3, 17]]),
        "max_initial_timestamp": rng.choice([None, 1.0, 0.2]),
        "initial_prompt": rng.choice(["", "abc"]),
        "hotwords": rng.choice(["", "the"]),
        "logprob_threshold": rng.choice([None, -1, -8.5]),
        "max_new_tokens": rng.choice([5, 20]),
    }
    if rng.random() < 0.4:
        options["vad_filter"] = True
        options["vad_speech_pad_ms"] = rng.choice([0, 120])
        if rng.random() < 0.5:
            options["batch_size"] = rng.choice([1, 3])
    elif rng.random() < 0.4:
        options["clip_timestamps"] = rng.choice([[0.5, 3.25], [2]])
    if options["word_timestamps"] and rng.random() < 0.5:
        options["hallucination_silence_threshold"] = 0.3
    return options


def test_results_are_those_of_the_program(transcriber, program, files):
    rng = random.Random(5)
    num_segments = num_words = num_windows = 0
    for _ in range(25):
        options = draw_options(rng)
        command = [program, "transcribe", "-m", "whisper", "--threads=1", "-f", "json"]
        done = subprocess.run(
            command + flags_of(options) + ["talk.wav"],
            cwd=files,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, (done.stderr, options)
        seen = []
        transcript = transcriber.transcribe(
            files / "talk.wav", on_segment=seen.append, **options
        )
        assert plain(transcript) == json.loads(done.stdout), options
        assert seen == transcript.segments, options
        num_segments += len(seen)
        num_words += sum(len(segment.words or []) for segment in seen)
        num_windows += len(transcript.windows)
    assert min(num_segments, num_words, num_windows) > 20


def test_defaults_are_those_of_the_program(transcriber, program, files):
    command = [program, "transcribe", "-m", "whisper", "-f", "json", "talk.wav"]
    for options in ({}, HEARD):
        text = subprocess.check_output(command + flags_of(options), cwd=files)
        transcript = transcriber.transcribe(files / "talk.wav", **options)
        assert plain(transcript) == json.loads(text)


def kinds_of_audio(files):
    numpy = pytest.importorskip("numpy")
    path = files / "talk.wav"
    content = path.read_bytes()
    samples = numpy.array(SAMPLES, numpy.float32)
    fixed = samples.copy()
    fixed.flags.writeable = False
    every_other = numpy.repeat(samples, 2)[::2]
    assert not every_other.flags.c_contiguous
    return [
        str(path),
        path,
        content,
        bytearray(content),
        memoryview(content),
        io.BytesIO(content),
        open(path, "rb"),
        SAMPLES,
        memoryview(SAMPLES),
        samples,
        fixed,
        every_other,
        samples[::-1].copy()[::-1],
    ]


def test_audio_of_every_kind_is_the_same(transcriber, files):
    results = [
        transcriber.transcribe(audio, **GREEDY) for audio in kinds_of_audio(files)
    ]
    assert results[0].text and results[0].duration == 6.4
    assert all(result == results[0] for result in results)


def test_tensors_of_torch(transcriber):
    torch = pytest.importorskip("torch")
    expected = transcriber.transcribe(SAMPLES, **GREEDY)
    tensor = torch.tensor(SAMPLES)
    for audio in (tensor, torch.stack([tensor, tensor], 1)[:, 0]):
        assert transcriber.transcribe(audio, **GREEDY) == expected
    with pytest.raises(espalier.InvalidArgument, match="audio must be of float32"):
        transcriber.transcribe(tensor.double())


def test_samples_beyond_one_are_clipped_as_in_files(transcriber):
    loud = array.array("f", [9 * sample for sample in SAMPLES])
    clipped = array.array("f", [max(-1, min(1, sample)) for sample in loud])
    results = [
        transcriber.transcribe(audio, **GREEDY)
        for audio in (loud, clipped, wav_of(loud))
    ]
    assert results[0] == results[1] == results[2]
    assert results[0] != transcriber.transcribe(SAMPLES, **GREEDY)


@pytest.mark.parametrize("size", [160, 161, 16000])
def test_short_and_silent_audio(transcriber, size):
    silence = array.array("f", size * [0.0])
    result = transcriber.transcribe(silence, **GREEDY)
    assert result == transcriber.transcribe(wav_of(silence), **GREEDY)
    assert result.duration == size / 16000
    nothing = transcriber.transcribe(silence, vad_filter=True, **GREEDY)
    assert (nothing.text, nothing.segments) == ("", [])


@pytest.mark.parametrize("size", [0, 1, 159])
def test_audio_that_is_too_short(transcriber, size):
    silence = array.array("f", size * [0.0])
    for audio in (silence, wav_of(silence)):
        with pytest.raises(espalier.InvalidArgument, match=f"10 ms.*got {size} "):
            transcriber.transcribe(audio)


def test_numbers_of_numpy_are_options(transcriber):
    numpy = pytest.importorskip("numpy")
    options = {
        "num_beams": numpy.int64(2),
        "temperature": numpy.array([0, 0.5]),
        "suppress_tokens": numpy.array([3, 4]),
        "word_timestamps": numpy.bool_(True),
        "length_penalty": numpy.float32(0.5),
    }
    python = {name: value.tolist() for name, value in options.items()}
    assert transcriber.transcribe(SAMPLES, **options) == transcriber.transcribe(
        SAMPLES, **python
    )


def test_other_names_of_options(transcriber):
    other = transcriber.transcribe(SAMPLES, beam_size=3, log_prob_threshold=-3)
    ours = transcriber.transcribe(SAMPLES, num_beams=3, logprob_threshold=-3)
    assert other == ours


def test_every_option_is_read(transcriber):
    # A value of no option's type.
    for name in TranscribeOptions.__annotations__:
        with pytest.raises(espalier.InvalidArgument) as caught:
            transcriber.transcribe(SAMPLES, **{name: object()})
        assert caught.value.field == name


# Options, the field of the error, and a part of its message.
WRONG = [
    ({"num_beam": 3}, "num_beam", "did you mean num_beams?"),
    ({"num_beams": 0}, "num_beams", "in [1, 1000], got 0"),
    ({"beam_size": 10**6}, "beam_size", "beam_size must be in [1, 1000]"),
    ({"num_beams": 10**30}, "num_beams", "must be an integer, got 1000"),
    ({"num_beams": 2.0}, "num_beams", "must be an integer, got 2.0"),
    ({"num_beams": True}, "num_beams", "must be an integer, got True"),
    ({"num_beams": None}, "num_beams", "must be an integer, got None"),
    ({"num_beams": 3, "beam_size": 3}, "beam_size", "are one option"),
    ({"best_of": 1001}, "best_of", "in [1, 1000]"),
    ({"seed": -1}, "seed", "must be an integer from 0, got -1"),
    ({"temperature": -1}, "temperature", "in [0, 100], got -1"),
    ({"temperature": float("nan")}, "temperature", "got nan"),
    ({"temperature": []}, "temperature", "must not be empty"),
    ({"temperature": 101 * [0]}, "temperature", "at most 100 numbers, got 101"),
    ({"temperature": "0"}, "temperature", "must be a number, got '0'"),
    ({"temperature": [0, "a"]}, "temperature", "temperature[1] must be a number"),
    ({"patience": float("inf")}, "patience", "number above 0"),
    ({"length_penalty": 1e300}, "length_penalty", "in [-100, 100]"),
    ({"language": "Klingon"}, "language", "Klingon"),
    ({"language": 5}, "language", "must be a text, got 5"),
    ({"language": "\ud800"}, "language", "must be a text"),
    ({"task": "sing"}, "task", "got 'sing'"),
    ({"word_timestamps": 1}, "word_timestamps", "True or False, got 1"),
    ({"suppress_tokens": [-2]}, "suppress_tokens", "got -2"),
    ({"suppress_tokens": [2**40]}, "suppress_tokens", "got 1099511627776"),
    ({"clip_timestamps": [3, 1]}, "clip_timestamps", "clip_timestamps"),
    ({"max_new_tokens": 41}, "max_new_tokens", "in [1, 40]"),
    ({"hallucination_silence_threshold": 1}, None, "needs word_timestamps"),
    ({"append_punctuations": "x"}, "append_punctuations", "needs word_timestamps"),
    ({"prefix": 500 * "ab "}, "prefix", "tokens"),
    ({"initial_prompt": (1 << 21) * "a"}, "initial_prompt", "at most 1048576 bytes"),
    ({"batch_size": 2}, "batch_size", "needs vad_filter=True, got 2"),
    ({"vad_threshold": 0.3}, "vad_threshold", "needs vad_filter=True"),
    ({"vad_filter": True, "vad_threshold": 2}, "vad_threshold", "got 2"),
    ({"vad_filter": True, "batch_size": 999}, "batch_size", "in [1, 256], got 999"),
    ({"vad_filter": True, "clip_timestamps": [1]}, "clip_timestamps", "vad_filter"),
    ({"num_alternatives": -1}, "num_alternatives", "got -1"),
    ({"timeout": 0}, "timeout", "above 0 seconds"),
]


@pytest.mark.parametrize("options,field,message", WRONG)
def test_a_wrong_option_is_named(transcriber, options, field, message):
    with pytest.raises(espalier.InvalidArgument) as caught:
        transcriber.transcribe(SAMPLES, **options)
    assert message in str(caught.value)
    assert field is None or caught.value.field == field


def test_beams_that_do_not_fit_name_the_option(files):
    with espalier.Transcriber(files / "whisper", kv_cache_mib=1, page_size=512) as made:
        with pytest.raises(espalier.NeverFits) as caught:
            made.transcribe(SAMPLES, beam_size=1000, **HEARD)
    assert caught.value.field == "beam_size" and caught.value.value == "1000"
    assert "kv_cache_mib" in str(caught.value)


def test_wrong_audio(transcriber, files):
    numpy = pytest.importorskip("numpy")
    nan = array.array("f", SAMPLES)
    nan[77] = float("nan")
    infinite = numpy.array(SAMPLES, numpy.float32)
    infinite[5] = -numpy.inf
    wrong = [
        (numpy.zeros((2, 400), numpy.float32), "must have 1 dimension, got 2"),
        (numpy.float32(1), "must have 1 dimension, got 0"),
        (numpy.zeros(400, numpy.int16), "must be of float32, .*, got int16"),
        (numpy.zeros(400), "float32, .*, got float64"),
        (numpy.zeros(400, bool), "float32, .*, got bool"),
        (numpy.zeros(400, numpy.complex64), "float32, .*, got complex64"),
        (numpy.zeros(400, ">f4"), "array of samples, got ndarray"),
        (array.array("h", [0, 0]), "float32, .*, got int16"),
        (nan, r"audio\[77\] must be finite, got nan"),
        (infinite, r"audio\[5\] must be finite, got -inf"),
        (None, "array of samples, got NoneType"),
        ([0.0, 0.5], "array of samples, got list"),
        (7, "array of samples, got int"),
        (io.StringIO("text"), "must be a file opened in binary mode, got 'text'"),
        ("a\0b.wav", "without NUL"),
    ]
    for audio, message in wrong:
        with pytest.raises(espalier.InvalidArgument, match=message) as caught:
            transcriber.transcribe(audio)
        assert caught.value.field == "audio", message


def test_what_is_no_audio_is_named(transcriber, files, tmp_path):
    (tmp_path / "no.wav").write_text("no audio")
    (tmp_path / "empty.wav").write_bytes(b"")
    with pytest.raises(espalier.NotFound, match="absent.wav"):
        transcriber.transcribe(tmp_path / "absent.wav")
    for audio in (tmp_path / "no.wav", tmp_path / "empty.wav"):
        with pytest.raises(espalier.InvalidArgument, match=audio.name):
            transcriber.transcribe(audio)
    with pytest.raises(espalier.EspalierError, match=str(tmp_path)):
        transcriber.transcribe(tmp_path)
    for content in (b"", b"no audio", wav_of(SAMPLES)[:20]):
        with pytest.raises(espalier.InvalidArgument, match="audio"):
            transcriber.transcribe(content)
    name = os.fsencode(tmp_path / "x") + b"\xff.wav"
    with open(name, "wb") as file:
        file.write(wav_of(SAMPLES))
    assert transcriber.transcribe(os.fsdecode(name), **GREEDY).text
    absent = os.fsdecode(name + b"2")
    with pytest.raises(espalier.NotFound, match=absent):
        transcriber.transcribe(absent)


def test_models_of_another_kind_name_their_class(files):
    with pytest.raises(espalier.InvalidArgument, match="espalier.Transcriber"):
        espalier.LLM(files / "whisper")
    with pytest.raises(espalier.InvalidArgument, match="LLM"):
        espalier.Transcriber(MODEL)


def test_wrong_options_of_a_transcriber_are_named(files):
    whisper = files / "whisper"
    with pytest.raises(espalier.NotFound, match="absent"):
        espalier.Transcriber(files / "absent")
    with pytest.raises(espalier.InvalidArgument, match="vad_model.*config.json"):
        espalier.Transcriber(whisper, vad_model=whisper / "config.json")
    for name, value in [
        ("num_sequences", 0),
        ("num_windows", 257),
        ("kv_cache_mib", -1),
        ("device", "tpu"),
    ]:
        with pytest.raises(espalier.InvalidArgument, match=name):
            espalier.Transcriber(whisper, **{name: value})
    with pytest.raises(TypeError, match="max_wait"):
        espalier.Transcriber(whisper, max_wait=3)


def test_an_english_model(files):
    with espalier.Transcriber(files / "english", num_threads=1) as english:
        transcript = english.transcribe(SAMPLES, **GREEDY)
        assert (transcript.language, transcript.language_probability) == ("en", 1)
        for name, value in {
            "task": "translate",
            "language": "de",
            "multilingual": True,
        }.items():
            with pytest.raises(espalier.InvalidArgument) as caught:
                english.transcribe(SAMPLES, **{name: value})
            assert caught.value.field == name
        with pytest.raises(espalier.InvalidArgument) as caught:
            english.transcribe(SAMPLES, vad_filter=True)
        assert caught.value.field == "vad_filter"


def test_threads_get_what_they_get_alone(transcriber):
    audios = [samples_of(3.2, seed) for seed in range(6)]
    options = {"word_timestamps": True, "temperature": [0, 1], **HEARD}
    alone = [transcriber.transcribe(audio, **options) for audio in audios]
    together = [None] * len(audios)

    def run(i):
        together[i] = transcriber.transcribe(audios[i], **options)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(audios))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone and len({result.text for result in alone}) > 1


def test_the_gil_is_free_meanwhile(transcriber):
    ticks = 0
    thread = threading.Thread(target=lambda: transcriber.transcribe(SAMPLES, **HEARD))
    thread.start()
    while thread.is_alive():
        ticks += 1
        time.sleep(0.001)
    assert ticks > 10


def test_what_a_callback_raises_ends_the_call(transcriber):
    class Enough(Exception):
        pass

    for error in (Enough(), KeyboardInterrupt(), SystemExit()):
        seen = []

        def on_segment(segment):
            seen.append(segment)
            raise error

        with pytest.raises(type(error)):
            transcriber.transcribe(TALK, on_segment=on_segment, **LONG)
        assert len(seen) == 1
    wait_until_idle(transcriber)
    assert transcriber.transcribe(SAMPLES, **GREEDY).text


def wait_until_idle(transcriber):
    for _ in range(500):
        if transcriber.stats()["num_open"] == 0:
            return
        time.sleep(0.01)
    raise AssertionError("it still runs")


def test_a_callback_may_transcribe_and_close(files):
    made = espalier.Transcriber(files / "whisper", num_threads=1)
    texts = []

    def on_segment(segment):
        texts.append(made.transcribe(SAMPLES, **GREEDY).text)
        made.close()

    with pytest.raises(espalier.CancelledError, match="the Transcriber is closed"):
        made.transcribe(TALK, on_segment=on_segment, **LONG)
    assert texts and repr(made).endswith("closed)")
    with pytest.raises(espalier.CancelledError, match="the Transcriber is closed"):
        made.transcribe(SAMPLES)


def test_a_timeout(transcriber):
    begin = time.monotonic()
    with pytest.raises(espalier.TimeoutError):
        transcriber.transcribe(TALK, timeout=0.2, **LONG)
    assert time.monotonic() - begin < 10


def test_closed_while_threads_transcribe(files):
    made = espalier.Transcriber(
        files / "whisper", num_threads=1, vad_model=files / "vad.safetensors"
    )
    errors = []

    def run(options):
        try:
            made.transcribe(TALK, **LONG, **options)
        except espalier.CancelledError as error:
            errors.append(str(error))

    each = [{}, {}, {"vad_filter": True}, {"vad_filter": True, "batch_size": 4}]
    threads = [threading.Thread(target=run, args=(options,)) for options in each]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    made.close()
    for thread in threads:
        thread.join(timeout=60)
    assert errors == 4 * ["the Transcriber is closed"]


def test_coroutines(transcriber):
    audios = [samples_of(2.5, seed) for seed in range(4)]
    alone = [transcriber.transcribe(audio, **HEARD) for audio in audios]
    seen = [[] for _ in audios]

    async def main():
        together = await asyncio.gather(
            *(
                transcriber.atranscribe(audio, on_segment=segments.append, **HEARD)
                for audio, segments in zip(audios, seen)
            )
        )
        assert together == alone and seen == [one.segments for one in alone]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(transcriber.atranscribe(TALK, **LONG), 0.2)
        with pytest.raises(espalier.TimeoutError):
            await transcriber.atranscribe(TALK, timeout=0.1, **LONG)
        with pytest.raises(ZeroDivisionError):
            await transcriber.atranscribe(TALK, on_segment=lambda _: 1 / 0, **LONG)
        with pytest.raises(espalier.InvalidArgument, match="num_beams"):
            await transcriber.atranscribe(SAMPLES, num_beams=0)

    asyncio.run(main())
    wait_until_idle(transcriber)


def test_files_of_other_rates_and_channels(transcriber, tmp_path):
    path = tmp_path / "stereo.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(44100)
        file.writeframes(random.Random(1).randbytes(4 * 44100 * 2))
    transcript = transcriber.transcribe(path, **GREEDY)
    assert transcript.duration == 2 and transcript.text


def test_a_transcript_can_be_pickled_and_a_transcriber_cannot(transcriber):
    import pickle

    transcript = transcriber.transcribe(SAMPLES, word_timestamps=True, **GREEDY)
    assert pickle.loads(pickle.dumps(transcript)) == transcript
    with pytest.raises(TypeError, match="each process"):
        pickle.dumps(transcriber)


def test_the_example(files):
    example = SOURCE / "python/examples/transcribe.py"
    talk = str(files / "talk.wav")
    done = subprocess.run(
        [sys.executable, example, files / "whisper", talk, talk],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(f"{talk}: 6.4 s of ") == 2


def start(files, code):
    prelude = f"""
import array, asyncio, os, random, sys, threading, time
import espalier
assert "numpy" not in sys.modules and "torch" not in sys.modules
made = espalier.Transcriber({str(files / "whisper")!r}, num_threads=1)
rng = random.Random(1)
talk = array.array("f", [rng.uniform(-0.3, 0.3) for _ in range(60 * 16000)])
short = talk[:32000]
long = {LONG!r}
"""
    return subprocess.Popen(
        # Python 3.12 warns of every fork beside threads.
        [sys.executable, "-W", "ignore", "-c", prelude + textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


EXITS = {
    "at once": "",
    "after an answer": "made.transcribe(short)",
    "closed": "made.close()",
    "with a daemon that transcribes": """
        def run():
            made.transcribe(talk, **long)
        threading.Thread(target=run, daemon=True).start()
        time.sleep(0.3)
    """,
    "deleted while a thread transcribes": """
        seen = []
        def run(made):
            try:
                made.transcribe(talk, on_segment=seen.append, timeout=1, **long)
            except espalier.TimeoutError:
                seen.append(None)
        thread = threading.Thread(target=run, args=(made,))
        thread.start()
        del made
        thread.join()
        assert seen[-1] is None
    """,
    "with a task that runs": """
        async def main():
            asyncio.ensure_future(made.atranscribe(talk, **long))
            await asyncio.sleep(0.3)
        asyncio.run(main())
    """,
    "in a loop that runs": """
        async def main():
            asyncio.ensure_future(made.atranscribe(talk, **long))
            await asyncio.sleep(0.3)
            sys.exit(0)
        asyncio.run(main())
    """,
    "exit in a callback": """
        made.transcribe(talk, on_segment=lambda _: sys.exit(0), **long)
    """,
    "fork": """
        if os.fork() == 0:
            try:
                made.transcribe(short)
            except RuntimeError as error:
                assert "this Transcriber was made before a fork" in str(error)
                made.close()
                own = espalier.Transcriber(made.directory, num_threads=1)
                own.transcribe(short)
                sys.exit(0)
            os._exit(3)
        assert os.wait()[1] == 0
        made.transcribe(short)
    """,
    "fork while it transcribes": """
        def on_segment(segment):
            if not forked:
                forked.append(os.fork())
        forked = []
        is_child = lambda: forked == [0]
        try:
            made.transcribe(talk, on_segment=on_segment, timeout=2, **long)
        except RuntimeError as error:
            assert is_child() and "before a fork" in str(error)
        except espalier.TimeoutError:
            assert not is_child() and os.wait()[1] == 0
    """,
}


@pytest.mark.parametrize("state", EXITS)
def test_exit(files, state):
    process = start(files, EXITS[state])
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")


def test_ctrl_c_ends_a_call_between_segments(files):
    # A shell's jobs in the background inherit that it is ignored.
    process = start(
        files,
        """
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print('ready', flush=True)
        try:
            # No segment comes: all windows are silent.
            made.transcribe(20 * talk, no_speech_threshold=0, logprob_threshold=None,
                            temperature=0, on_segment=print)
        except KeyboardInterrupt:
            print('interrupted', flush=True)
        print(made.transcribe(short).duration)
        """,
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    assert time.monotonic() - begin < 2
    stdout, stderr = process.communicate(timeout=60)
    assert (stdout, stderr) == ("2.0\n", "")

"""Blocking calls: values, errors, what is refused."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

import espalier
from conftest import MODEL, SENTENCES, SOURCE


def texts(answers):
    return [[output.text for output in a.outputs] for a in answers]


def program():
    path = os.environ.get("ESPALIER_PROGRAM", SOURCE / "build/release/bin/espalier")
    if not os.path.exists(path):
        pytest.skip(f"there is no program {path}")
    return str(path)


def test_one_answer_a_prompt_in_order(llm):
    answers = llm.generate(SENTENCES, num_beams=4, num_return_sequences=2)
    assert [a.prompt for a in answers] == SENTENCES
    assert all(len(a.outputs) == 2 for a in answers)
    assert all(
        a.outputs[0].score >= a.outputs[1].score and a.outputs[1].index == 1
        for a in answers
    )


def test_equals_the_program_to_the_bit(llm, tmp_path):
    """The lines of `espalier batch`, whose floats are written exactly."""
    params = [
        {"num_beams": 4, "num_return_sequences": 3, "logprobs": 2},
        {"do_sample": True, "seed": 7, "num_return_sequences": 2},
        {"num_beams": 2, "max_new_tokens": 5},
        {"prompt_logprobs": 1},
    ]
    lines = [
        {"id": i, "prompt": SENTENCES[i % 5], "params": params[i % 4]}
        for i in range(60)
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = subprocess.run(
        [program(), "batch", "-m", MODEL, source, "--threads", "1"],
        capture_output=True,
        text=True,
        check=True,
    )
    answers = llm.generate(
        [line["prompt"] for line in lines], [line["params"] for line in lines]
    )
    known = {a["id"]: a for a in map(json.loads, done.stdout.splitlines())}
    for line, answer in zip(lines, answers):
        expected = known[line["id"]]
        assert len(answer.outputs) == len(expected["hypotheses"])
        for output, hypothesis in zip(answer.outputs, expected["hypotheses"]):
            assert output.token_ids == hypothesis["tokens"]
            assert output.text == hypothesis["text"]
            assert output.score == pytest.approx(hypothesis["score"], rel=1e-7)
            assert output.finish_reason == hypothesis["finish_reason"]
            if "logprobs" in hypothesis:
                for mine, theirs in zip(output.logprobs, hypothesis["logprobs"]):
                    chosen = mine[theirs["token"]]
                    assert chosen.logprob == pytest.approx(theirs["log_prob"])
                    assert chosen.rank == theirs["rank"]
        if "prompt_logprobs" in expected:
            assert answer.prompt_logprobs[0] is None
            assert len(answer.prompt_logprobs) == len(expected["prompt_logprobs"])
        assert answer.usage["prompt_tokens"] == expected["usage"]["prompt_tokens"]


def test_prompts_of_ids_arrays_and_texts_are_the_same(llm):
    numpy = pytest.importorskip("numpy")
    text = llm.generate("How old are you?", num_beams=4)
    ids = llm.tokenizer.encode("How old are you?", add_special_tokens=False)
    assert all(isinstance(token, int) for token in ids)
    by_ids = llm.generate(ids, num_beams=4)
    by_array = llm.generate(numpy.array(ids, dtype=numpy.int32), num_beams=4)
    many = llm.generate([ids, numpy.array(ids)], num_beams=4)
    assert by_ids[0].outputs[0].token_ids == by_array[0].outputs[0].token_ids
    assert texts(many) == texts(by_ids) * 2
    whole = llm.prompt_token_ids("How old are you?")
    assert texts(llm.generate(whole, num_beams=4)) == texts(text)
    assert texts(llm.generate(list(numpy.array(whole)), num_beams=4)) == texts(text)
    with pytest.raises(espalier.InvalidArgument, match="template"):
        llm.generate(whole, template="en-fr")


@pytest.mark.parametrize(
    ("keywords", "field", "value", "message"),
    [
        ({"num_beams": 0}, "num_beams", "0", "num_beams must be at least 1"),
        ({"num_beams": "4"}, "num_beams", '"4"', "num_beams must be an integer"),
        ({"num_beems": 4}, None, None, "num_beams"),
        ({"temperature": -1.0, "do_sample": True}, "temperature", "-1", "temperature"),
        ({"template": "none"}, None, None, "template"),
        ({"logprobs": 1000}, "logprobs", "1000", "logprobs"),
        ({"length_penalty": float("inf")}, "length_penalty", "inf", "finite"),
    ],
)
def test_errors_name_field_and_value(llm, keywords, field, value, message):
    with pytest.raises((espalier.InvalidArgument, espalier.NotFound)) as error:
        llm.generate("Hello", **keywords)
    assert message in str(error.value)
    if field is not None:
        assert (error.value.field, error.value.value) == (field, value)


def test_a_wrong_prompt_is_named_and_others_have_answers(llm):
    prompts = ["Hello", [10**6], "Good evening"]
    with pytest.raises(espalier.InvalidArgument, match="prompt_tokens"):
        llm.generate(prompts)
    answers = llm.generate(prompts, return_exceptions=True)
    assert isinstance(answers[1], espalier.InvalidArgument)
    assert answers[0].outputs[0].text and answers[2].outputs[0].text
    for wrong in ([-1], ["x", 3], [2**40], [1.5]):
        answers = llm.generate(["a", wrong], return_exceptions=True)
        assert isinstance(answers[1], espalier.InvalidArgument), wrong
        assert answers[0].outputs


@pytest.mark.parametrize("prompt", [None, 3, 1.5, {"a": 1}, ["x", 3], [[1.5]], b"x"])
def test_prompts_of_other_types_raise(llm, prompt):
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        llm.generate(prompt)


def test_nan_and_odd_params_raise(llm):
    for field, value in (
        ("temperature", float("nan")),
        ("num_beams", object()),
        ("logit_bias", {"3": float("inf")}),
        ("template", {1}),
    ):
        with pytest.raises(espalier.InvalidArgument, match=field) as error:
            llm.generate("Hello", **{field: value})
        assert error.value.field == field
    with pytest.raises(TypeError, match="params must be"):
        llm.generate("Hello", 3)
    with pytest.raises(ValueError, match="one for each of 1"):
        llm.generate("Hello", [{}, {}])


def test_missing_models_and_wrong_options(tmp_path):
    with pytest.raises(espalier.EspalierError, match="nowhere"):
        espalier.LLM(tmp_path / "nowhere")
    with pytest.raises(espalier.InvalidArgument, match="device"):
        espalier.LLM(MODEL, device="tpu")
    with pytest.raises(TypeError, match="devise"):
        espalier.LLM(MODEL, devise="cpu")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("preempted_pages", "disk", "preempted_pages must be auto, host or drop"),
        ("prefill_share", 1.5, "prefill_share must be in"),
        ("max_waiting_tokens", -1, "max_waiting_tokens must be"),
        ("max_candidates", 0, "max_candidates must be"),
        ("max_score_edits", -1, "max_score_edits must be"),
        ("speculate", True, "speculate must be"),
        ("speculate", "sometimes", "speculate.method must be"),
        ("speculate", {"method": "ngram", "num_tokens": 99}, "speculate.num_tokens"),
        ("speculate", "draft", "speculate.method"),
        ("step_timeout", 0, "step_timeout must be above 0"),
    ],
)
def test_wrong_options_are_named(option, value, message):
    with pytest.raises(ValueError, match=message):
        espalier.LLM(MODEL, **{option: value})


def test_speculation_of_requests_that_leave_it_open(llm):
    text = "No, no, no, no, no, no, no, no, no, no, no, no."
    expected = llm.generate(text, max_new_tokens=40)[0].outputs[0].token_ids

    def drafted(llm, **keywords):
        answer = llm.generate(text, max_new_tokens=40, **keywords)[0]
        assert answer.outputs[0].token_ids == expected
        return answer.usage["drafted_tokens"] > 0

    for options, drafts in (
        ({"speculate": "ngram:4"}, True),
        ({"speculate": {"method": "ngram"}}, True),
        ({"speculate": False}, False),
        ({"draft_model": MODEL}, True),
        ({"draft_model": MODEL, "speculate": "off"}, False),
    ):
        with espalier.LLM(MODEL, num_threads=1, **options) as made:
            assert drafted(made) == drafts, options
            assert not drafted(made, speculate="off")


def test_limits_of_options():
    with espalier.LLM(MODEL, num_threads=1, max_candidates=4) as made:
        with pytest.raises(espalier.Overloaded, match="room for 4"):
            made.generate("Hello", num_beams=4)
    with espalier.LLM(MODEL, num_threads=1, max_waiting_tokens=3) as made:
        with pytest.raises(espalier.Overloaded, match="tokens"):
            made.generate(SENTENCES)


def test_a_timeout_ends_the_call(llm):
    began = time.monotonic()
    with pytest.raises(TimeoutError) as error:
        llm.generate(
            ["word " * 100] * 50, num_beams=16, min_new_tokens=200, timeout=0.05
        )
    assert isinstance(error.value, espalier.TimeoutError)
    assert time.monotonic() - began < 5
    with pytest.raises(ValueError, match="timeout"):
        llm.generate("Hello", timeout=0)


def test_streams_tell_the_answer(llm):
    for keywords in ({"num_beams": 4}, {"do_sample": True, "seed": 3}):
        stream = llm.stream("She is waiting for the train.", **keywords)
        pieces = list(stream)
        answer = stream.result()
        told = "".join(piece.text for piece in pieces)
        assert answer.outputs[0].text.startswith(told) and told
        alone = llm.generate("She is waiting for the train.", **keywords)
        assert alone[0].outputs[0].text == answer.outputs[0].text


def test_leaving_a_stream_ends_its_request(llm):
    long = {"num_beams": 8, "min_new_tokens": 900, "max_new_tokens": 900}
    stream = llm.stream("Hello, hello.", **long)
    for _ in stream:
        break
    with pytest.raises(ValueError, match="left"):
        stream.result()
    stream = llm.stream("Hello, hello.", **long)
    stream.close()
    assert list(stream) == []
    before = llm.stats()["num_steps"]
    for _ in range(100):
        if llm.stats()["num_open"] == 0:
            break
        time.sleep(0.02)
    assert llm.stats()["num_open"] == 0
    assert llm.stats()["num_steps"] - before < 500


def test_a_stream_keeps_its_engine():
    stream = espalier.LLM(MODEL, num_threads=1).stream("Hello", num_beams=2)
    assert list(stream) and stream.result().outputs[0].text


def test_scores_are_those_of_what_is_generated(llm):
    answer = llm.generate("How old are you?", num_beams=4, length_penalty=0.0)[0]
    best = answer.outputs[0]
    scores = llm.score("How old are you?", [best.token_ids, "Bonjour"])
    assert scores[0].cumulative_logprob == pytest.approx(
        best.cumulative_logprob, abs=1e-4
    )
    assert len(scores[0].logprobs) == len(best.token_ids) == len(scores[0].ranks)
    assert scores[1].cumulative_logprob < scores[0].cumulative_logprob
    many = llm.score(["How old are you?"] * 3, [["a"], ["b", "c"], [best.token_ids]])
    assert [len(s) for s in many] == [1, 2, 1]
    with pytest.raises(espalier.InvalidArgument, match="continuations"):
        llm.score("How old are you?", [])
    with pytest.raises(espalier.InvalidArgument, match="each of 2 prompts"):
        llm.score(["a", "b"], [["x"]])
    with pytest.raises(TypeError, match="list"):
        llm.score("a", "bc")
    for call, field in (
        (lambda: llm.score("a", [[1.5]]), "continuations"),
        (lambda: llm.tokenizer.decode([1.5]), "token_ids"),
        (lambda: llm.tokenizer.decode([2**40]), "token_ids"),
    ):
        with pytest.raises(espalier.InvalidArgument, match=field) as error:
            call()
        assert error.value.field == field


def test_half_of_a_pair_is_no_text(llm):
    for call in (
        lambda: llm.generate("a\udc80b"),
        lambda: llm.score("a", ["\udc80"]),
        lambda: llm.generate("a", stop=["\udc80"]),
        lambda: llm.tokenizer.encode("\udc80"),
    ):
        with pytest.raises(espalier.InvalidArgument):
            call()


def test_threads_get_what_each_would_alone(llm):
    alone = texts(llm.generate(SENTENCES, num_beams=3))
    results = {}

    def run(i):
        results[i] = texts(llm.generate(SENTENCES, num_beams=3))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result == alone for result in results.values())


def test_other_threads_run_while_a_tokenizer_does(llm):
    text = "Hello, hello. " * 100_000
    tokens = llm.tokenizer.encode(text)
    for call in (
        lambda: llm.tokenizer.encode(text),
        lambda: llm.tokenizer.decode(tokens),
    ):
        gate, ran = threading.Lock(), []
        gate.acquire()

        def wait():
            gate.acquire()
            ran.append(True)

        other = threading.Thread(target=wait)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)  # only who waits lets go of the GIL
        try:
            other.start()
            gate.release()
            call()
            assert ran
        finally:
            sys.setswitchinterval(interval)
            other.join()


def test_a_prompt_whose_finalizer_cancels(llm):
    from espalier._espalier import Requests
    from espalier.params import parse

    requests = Requests()

    class Text(str):
        def __del__(self):
            requests.cancel(2)

    params = parse(None, {"num_beams": 8, "min_new_tokens": 900})
    requests.submit(llm._engine, 1, Text("Hello"), params, 60)
    requests.submit(llm._engine, 2, "Hello", params, 60)
    requests.cancel(1)
    assert len(requests) == 0


def test_progress_counts_wrong_prompts(llm):
    from espalier.params import parse

    counts = []
    prompts = ["Hello", [10**10]]
    llm._engine.generate(prompts, parse(None, {}), 60, counts.append)
    assert counts[-1] == 2


def test_constraints_and_choices(llm):
    answer = llm.generate("Hello", num_beams=3, constraint={"choice": ["oui", "non"]})[
        0
    ]
    assert answer.outputs[0].text.strip() in ("oui", "non")


def test_generation_config_of_transformers(llm):
    class Config:
        def to_diff_dict(self):
            return {"num_beams": 4, "use_cache": True, "stop_strings": [","]}

    by_config = llm.generate("How old are you?", Config())
    by_keywords = llm.generate("How old are you?", num_beams=4, stop=[","])
    assert texts(by_config) == texts(by_keywords)


def test_an_engine_goes_with_its_llm():
    """Without the collector of cycles."""
    import gc
    import weakref

    gc.disable()
    try:
        made = espalier.LLM(MODEL, num_threads=1)
        assert made.tokenizer.vocab_size > 0
        engine = weakref.ref(made._engine)
        del made
        assert engine() is None
    finally:
        gc.enable()


def test_memory_is_in_mib():
    for mib in (-1, 0, 2**44):
        with pytest.raises(espalier.InvalidArgument, match="kv_cache_mib"):
            espalier.LLM(MODEL, kv_cache_mib=mib)


def test_progress_of_tqdm(llm, capsys):
    pytest.importorskip("tqdm")
    llm.generate(SENTENCES, use_tqdm=True)
    assert "prompt" in capsys.readouterr().err


def test_closed_and_pickled():
    import pickle

    made = espalier.LLM(MODEL, num_threads=1)
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(made)
    made.close()
    made.close()
    with pytest.raises(espalier.CancelledError, match="closed"):
        made.generate("Hello")
    assert "closed" in repr(made)


def test_import_needs_neither_numpy_nor_torch():
    code = "import espalier, sys; print('numpy' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False False\n"


def test_a_chat_needs_a_template(llm):
    with pytest.raises(espalier.Unavailable, match="chat"):
        llm.chat([{"role": "user", "content": "Hello"}])


def test_memory_is_flat_over_many_requests(llm):
    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    count = int(os.environ.get("ESPALIER_PYTHON_REQUESTS", "3000"))
    prompts = [[5 + i % 50, 7] for i in range(count // 3)]
    llm.generate(prompts, max_new_tokens=1)
    before = resident()
    for _ in range(3):
        llm.generate(prompts, max_new_tokens=1)
    assert resident() - before < 4 << 20

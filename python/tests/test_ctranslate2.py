"""CTranslate2's classes: its own results where it is installed, and the same
tokens as LLM's."""

import itertools
import json
import random
import threading
import time

import pytest

import espalier
import espalier.ctranslate2 as ctranslate2
from conftest import MODEL, SENTENCES, SOURCE

FAMILIES = SOURCE / "tests/data/families"
# Float weights, which both compute with alike; mBART has no decoder start token
# of its own there.
ONE_THREAD = {"inter_threads": 1, "intra_threads": 1}
TRANSLATORS = ["bart", "m2m_100", "marian", "t5", "t5_gated", "umt5"]


def vocabulary_of(directory):
    return json.loads((directory / "shared_vocabulary.json").read_text())


@pytest.fixture(scope="module")
def translator():
    return ctranslate2.Translator(FAMILIES / "ctranslate2_marian", intra_threads=1)


@pytest.fixture(scope="module")
def generator():
    return ctranslate2.Generator(MODEL, intra_threads=1)


def draw_options(rng, tokens):
    most = rng.choice([1, 2, 5, 12, 20])
    options = {
        "beam_size": rng.choice([1, 2, 3, 4, 5]),
        "max_decoding_length": most,
        "min_decoding_length": rng.randint(0, min(4, most)),
        "length_penalty": rng.choice([0, 0.3, 1, 1, 1.7]),
        "disable_unk": rng.random() < 0.3,
        "return_end_token": rng.random() < 0.3,
        "max_input_length": rng.choice([0, 1, 4, 1024]),
        "end_token": rng.choice([None, None, tokens[9], [tokens[8], tokens[12]], [11]]),
    }
    if options["beam_size"] > 1:
        options["patience"] = rng.choice([1, 1.5, 2, 3])
        if options["length_penalty"] != 0:
            options["num_hypotheses"] = rng.randint(1, options["beam_size"])
    if rng.random() < 0.4:
        options["suppress_sequences"] = [
            [rng.choice(tokens) for _ in range(rng.randint(1, 2))]
            for _ in range(rng.randint(1, 3))
        ]
    return options


@pytest.mark.parametrize("name", TRANSLATORS)
def test_translations_are_those_of_ctranslate2(name):
    peer = pytest.importorskip("ctranslate2")
    directory = FAMILIES / f"ctranslate2_{name}"
    theirs = peer.Translator(str(directory), compute_type="float32", **ONE_THREAD)
    ours = ctranslate2.Translator(directory, compute_type="float32", **ONE_THREAD)
    tokens = vocabulary_of(directory)[4:-1]
    rng = random.Random(name)
    for _ in range(40):
        source = [
            [rng.choice(tokens) for _ in range(rng.randint(1, 9))]
            for _ in range(rng.randint(1, 4))
        ]
        options = draw_options(rng, tokens)
        expected = theirs.translate_batch(source, return_scores=True, **options)
        found = ours.translate_batch(source, return_scores=True, **options)
        for one, other in zip(found, expected, strict=True):
            assert one.hypotheses == other.hypotheses, options
            assert one.scores == pytest.approx(
                other.scores, rel=1e-5, abs=1e-5
            ), options


@pytest.mark.parametrize("name", ["marian", "t5"])
def test_greedy_prefixes_and_scores_are_those_of_ctranslate2(name):
    peer = pytest.importorskip("ctranslate2")
    directory = FAMILIES / f"ctranslate2_{name}"
    theirs = peer.Translator(str(directory), compute_type="float32", **ONE_THREAD)
    ours = ctranslate2.Translator(directory, compute_type="float32", **ONE_THREAD)
    tokens = vocabulary_of(directory)[4:-1]
    rng = random.Random(name)
    draw = lambda most: [rng.choice(tokens) for _ in range(rng.randint(1, most))]
    for _ in range(20):
        source = [draw(9) for _ in range(3)]
        prefix = [draw(3) for _ in source]
        options = {"beam_size": 1, "return_scores": True, "max_decoding_length": 9}
        expected = theirs.translate_batch(source, prefix, **options)
        found = ours.translate_batch(source, prefix, **options)
        for one, other in zip(found, expected, strict=True):
            assert one.hypotheses == other.hypotheses
            assert one.scores == pytest.approx(other.scores, rel=1e-5, abs=1e-5)
        target = [draw(6) for _ in source]
        offset = rng.randint(0, 2)
        expected = theirs.score_batch(source, target, offset=offset)
        found = ours.score_batch(source, target, offset=offset)
        for one, other in zip(found, expected, strict=True):
            assert one.tokens == other.tokens
            assert one.log_probs == pytest.approx(other.log_probs, rel=1e-5, abs=1e-5)
        stepwise = {"return_log_prob": True, "max_decoding_length": 9}
        steps = list(theirs.generate_tokens(source[0], prefix[0], **stepwise))
        ours_steps = list(ours.generate_tokens(source[0], prefix[0], **stepwise))
        for one, other in zip(ours_steps, steps, strict=True):
            assert (one.step, one.token, one.is_last) == (
                other.step,
                other.token,
                other.is_last,
            )
            assert one.log_prob == pytest.approx(other.log_prob, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    "source, prefix, options",
    [
        # A prefix as long as the limit, or longer, beside others.
        ([4, 4], [6, 1], {"max_decoding_length": 3}),
        ([4], [3], {"max_decoding_length": 3}),
        ([4], ["</s>"], {"max_decoding_length": 5}),
        (
            [4],
            None,
            {"end_token": "t55", "beam_size": 1},
        ),  # whose limit is above the context
        ([4], None, {"suppress_sequences": [[]], "max_decoding_length": 4}),
        ([0, 3], [2, 2], {"max_decoding_length": 4}),
    ],
)
def test_borders_are_those_of_ctranslate2(source, prefix, options):
    peer = pytest.importorskip("ctranslate2")
    directory = FAMILIES / "ctranslate2_marian"
    tokens = vocabulary_of(directory)[4:-1]
    make = lambda length: [length] if isinstance(length, str) else tokens[:length]
    many = [make(length) for length in source]
    prefixes = None if prefix is None else [make(length) for length in prefix]
    theirs = peer.Translator(str(directory), compute_type="float32", **ONE_THREAD)
    ours = ctranslate2.Translator(directory, compute_type="float32", **ONE_THREAD)
    found = ours.translate_batch(many, prefixes, **options)
    expected = theirs.translate_batch(many, prefixes, **options)
    assert [f.hypotheses for f in found] == [e.hypotheses for e in expected]


def test_scores_are_cut_as_ctranslate2_cuts_them():
    peer = pytest.importorskip("ctranslate2")
    directory = FAMILIES / "ctranslate2_marian"
    tokens = vocabulary_of(directory)[4:-1]
    theirs = peer.Translator(str(directory), compute_type="float32", **ONE_THREAD)
    ours = ctranslate2.Translator(directory, compute_type="float32", **ONE_THREAD)
    source, target = [tokens[:4], [], tokens[:9]], [tokens[:5], tokens[:2], []]
    for limit in (0, 1, 2, 3, 6, 1024):
        expected = theirs.score_batch(source, target, max_input_length=limit)
        found = ours.score_batch(source, target, max_input_length=limit)
        for one, other in zip(found, expected, strict=True):
            assert one.tokens == other.tokens, limit
            assert one.log_probs == pytest.approx(other.log_probs, rel=1e-5, abs=1e-5)


def test_done_does_not_wait_while_another_thread_does(translator):
    tokens = vocabulary_of(FAMILIES / "ctranslate2_marian")[4:-1]
    results = translator.translate_batch(
        [tokens[:5]] * 2000, beam_size=5, asynchronous=True, end_token=[]
    )
    waits = threading.Thread(target=results[-1].result)
    waits.start()
    time.sleep(0.01)
    before = time.monotonic()
    results[-2].done()
    took = time.monotonic() - before
    results[0].result()  # of another thread's wait
    assert waits.is_alive() and took < 0.5
    del results
    waits.join()


def test_steps_have_one_reader(generator):
    steps = generator.generate_tokens(["▁Hello"], max_length=100, end_token=[])
    errors = []

    def read():
        try:
            for _ in steps:
                pass
        except ValueError as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert all("another thread" in str(error) for error in errors)


def test_a_directory_of_transformers_has_the_pieces_of_its_tokenizer(generator):
    llm = generator.llm
    ids = llm.prompt_token_ids(SENTENCES[0])
    pieces = llm.tokenizer.convert_ids_to_tokens(ids)
    result = generator.generate_batch(
        [pieces],
        beam_size=4,
        num_hypotheses=2,
        max_length=60,
        include_prompt_in_result=False,
        return_end_token=True,
        return_scores=True,
    )[0]
    answer = llm.generate(
        [ids],
        num_beams=4,
        num_return_sequences=2,
        early_stopping=True,
        max_new_tokens=60,
        renormalize_logits=True,
    )[0]
    assert result.sequences_ids == [o.token_ids for o in answer.outputs]
    assert result.scores == [o.score for o in answer.outputs]
    assert "".join(result.sequences[0]).replace("▁", " ").strip()
    assert llm.tokenizer.convert_tokens_to_ids(pieces[0]) == ids[0]
    assert llm.tokenizer.convert_tokens_to_ids("no such token") is None


def test_results_may_be_taken_later_and_in_any_order(translator):
    tokens = vocabulary_of(FAMILIES / "ctranslate2_marian")[4:-1]
    source = [list(tokens[i : i + 5]) for i in range(12)]
    expected = translator.translate_batch(source, max_decoding_length=20)
    results = translator.translate_batch(
        source, max_decoding_length=20, asynchronous=True
    )
    for i in reversed(range(12)):
        assert results[i].result() == expected[i]
        assert results[i].done()
    lazily = translator.translate_iterable(
        iter(source), max_batch_size=1, max_decoding_length=20
    )
    assert list(lazily) == expected


def test_a_callback_sees_every_token_and_ends_its_own_search(translator):
    tokens = vocabulary_of(FAMILIES / "ctranslate2_marian")[4:-1]
    source = [tokens[:4], tokens[4:9]]
    options = {"beam_size": 1, "max_decoding_length": 12, "return_scores": True}
    seen = {0: [], 1: []}

    def watch(step):
        seen[step.batch_id].append(step.token)
        return step.batch_id == 1 and step.step == 2

    expected = translator.translate_batch(source, return_end_token=True, **options)
    found = translator.translate_batch(
        source, return_end_token=True, callback=watch, **options
    )
    assert found[0].hypotheses == expected[0].hypotheses == [seen[0]]
    assert found[0].scores == pytest.approx(expected[0].scores, abs=1e-6)
    assert found[1].hypotheses == [expected[1].hypotheses[0][:3]] == [seen[1]]


def test_an_iteration_that_is_left_ends_its_search(generator):
    steps = generator.generate_tokens(["▁Hello"], max_length=100, end_token=[])
    first = list(itertools.islice(steps, 3))
    assert [step.step for step in first] == [0, 1, 2]
    del steps
    while generator.llm.stats()["num_open"]:
        pass


def test_prompts_stand_in_results_unless_left_out(generator):
    prompt = generator.llm.tokenizer.convert_ids_to_tokens(
        generator.llm.prompt_token_ids(SENTENCES[1])
    )
    whole = generator.generate_batch([prompt], max_length=60)[0]
    rest = generator.generate_batch(
        [prompt[2:]],
        static_prompt=prompt[:2],
        max_length=60 - len(prompt) + 1,
        include_prompt_in_result=False,
    )[0]
    bos = generator.llm.tokenizer.convert_ids_to_tokens(
        [generator.llm.tokenizer.bos_token_id]
    )
    shown = prompt[1:] if prompt[:1] == bos else prompt
    assert whole.sequences[0] == shown + rest.sequences[0]
    scored = generator.score_batch([prompt])[0]
    assert scored.tokens == prompt[1:] and max(scored.log_probs) <= 0


def test_samples_are_of_one_prompt(generator):
    result = generator.generate_batch(
        [["▁Hello"]],
        num_hypotheses=3,
        sampling_topk=0,
        sampling_temperature=1.2,
        max_length=8,
        return_scores=True,
    )[0]
    assert len(result.sequences) == 3
    assert result.scores == sorted(result.scores, reverse=True)


def test_an_empty_source_is_not_run(translator):
    answer = translator.translate_batch(
        [[], ["</s>"]], num_hypotheses=2, return_scores=True
    )
    assert [a.hypotheses for a in answer] == [[[], []]] * 2
    assert [a.scores for a in answer] == [[0, 0]] * 2


@pytest.mark.parametrize(
    "options, message",
    [
        ({"return_attention": True}, "return_attention is not supported, got True"),
        ({"coverage_penalty": 0.2}, "coverage_penalty is not supported, got 0.2"),
        ({"batch_type": "words"}, "batch_type"),
        ({"max_batch_size": -1}, "max_batch_size"),
        ({"beam_size": 0}, "beam_size must be at least 1, got 0"),
        ({"num_hypotheses": 3}, "num_"),
        ({"length_penalty": 0, "num_hypotheses": 2}, "length_penalty"),
        ({"sampling_topk": 4}, "sampling_topk"),
        ({"suppress_sequences": [["no token"]]}, "suppress_sequences"),
        ({"end_token": "no token"}, "end_token"),
        ({"max_decoding_length": 0}, "max_decoding_length"),
        ({"target_prefix": [["t9"], ["t9"]]}, "target_prefix"),
        ({"callback": print}, "callback"),
        ({"beam_size": 1, "patience": -1}, "patience"),
        ({"sampling_topp": 0}, "sampling_topp"),
        ({"min_decoding_length": 9, "max_decoding_length": 8}, "min_decoding_length"),
        ({"max_input_length": -5}, "max_input_length"),
    ],
)
def test_wrong_arguments_are_refused_by_name(translator, options, message):
    with pytest.raises(ValueError, match=message):
        translator.translate_batch([["t9", "t10"]], **options)


def test_a_text_in_place_of_tokens_is_refused(translator, generator):
    with pytest.raises(TypeError, match="source"):
        translator.translate_batch(["Hello"])
    with pytest.raises(TypeError, match="start_tokens"):
        generator.generate_batch(["Hello"])
    with pytest.raises(ValueError, match="compute_type"):
        ctranslate2.Translator(MODEL, compute_type="int16")
    with pytest.raises(ValueError, match="inter_threads"):
        ctranslate2.Translator(MODEL, inter_threads=-1, intra_threads=-1)
    with pytest.raises(TypeError, match="no_such"):
        ctranslate2.Translator(MODEL, no_such=1)
    with pytest.raises(espalier.InvalidArgument, match="start_tokens"):
        generator.generate_batch([[]])

"""vLLM's classes: its documented examples, and the same answers as LLM's."""

import pytest

import espalier.vllm as vllm
from conftest import MODEL, SENTENCES


@pytest.fixture(scope="module")
def model():
    return vllm.LLM(model=str(MODEL), dtype="float32", num_threads=1)


def test_samples_are_those_of_the_engine(model):
    params = vllm.SamplingParams(
        n=2, temperature=0.8, top_p=0.95, seed=5, max_tokens=12
    )
    outputs = model.generate(SENTENCES, params, use_tqdm=False)
    alone = model.llm.generate(
        SENTENCES,
        do_sample=True,
        temperature=0.8,
        top_p=0.95,
        seed=5,
        max_new_tokens=12,
        num_return_sequences=2,
    )
    for output, answer in zip(outputs, alone):
        assert output.prompt == answer.prompt and output.finished
        assert [o.token_ids for o in output.outputs] == [
            o.token_ids for o in answer.outputs
        ]
    assert outputs[0].request_id != outputs[1].request_id


def test_temperature_0_is_greedy_and_16_tokens_are_the_default(model):
    output = model.generate(
        SENTENCES[1], vllm.SamplingParams(temperature=0), use_tqdm=False
    )[0]
    greedy = model.llm.generate(SENTENCES[1], max_new_tokens=16)[0]
    assert output.outputs[0].token_ids == greedy.outputs[0].token_ids
    ids = output.prompt_token_ids
    again = model.generate(
        {"prompt_token_ids": ids}, vllm.SamplingParams(temperature=0)
    )
    assert again[0].prompt_token_ids == ids
    assert again[0].outputs[0].token_ids == greedy.outputs[0].token_ids


def test_beam_search_has_the_best_hypotheses(model):
    params = vllm.BeamSearchParams(beam_width=4, max_tokens=30)
    output = model.beam_search([{"prompt": SENTENCES[0]}], params)[0]
    answer = model.llm.generate(SENTENCES[0], num_beams=4, num_return_sequences=4)[0]
    assert [s.text for s in output.sequences] == [o.text for o in answer.outputs]
    assert output.sequences[0].cum_logprob <= 0
    with pytest.raises(ValueError, match="temperature"):
        model.beam_search(
            "Hello", vllm.BeamSearchParams(beam_width=2, max_tokens=3, temperature=0.7)
        )


def test_logprobs_and_stops(model):
    params = vllm.SamplingParams(
        temperature=0, logprobs=2, stop=[","], logit_bias={3: -1.0}, max_tokens=20
    )
    output = model.generate(SENTENCES[0], params, use_tqdm=False)[0].outputs[0]
    assert len(output.logprobs) == len(output.token_ids)
    assert all(token in best for token, best in zip(output.token_ids, output.logprobs))
    assert "," not in output.text
    assert output.finish_reason in ("stop", "length")


def test_unknown_fields_and_prompts_are_refused():
    with pytest.raises(TypeError, match="best_off"):
        vllm.SamplingParams(best_off=3)
    for temperature in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="temperature"):
            vllm.SamplingParams(temperature=temperature)
    with pytest.raises(ValueError, match="top_k must be at least -1, got -2"):
        vllm.SamplingParams(top_k=-2)
    with pytest.raises(TypeError, match="tensor_parallel_size"):
        vllm.LLM(model=str(MODEL), tensor_parallel_size=2)


def test_max_tokens_none_is_the_context(model):
    params = vllm.SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)
    output = model.generate("Hello", params, use_tqdm=False)[0].outputs[0]
    room = model.llm.model["max_context"] - len(model.llm.prompt_token_ids("Hello"))
    assert len(output.token_ids) == room


def test_a_prompt_without_text(model):
    with pytest.raises(ValueError, match="prompt_token_ids"):
        model.generate({"multi_modal_data": 1})
    with pytest.raises(ValueError, match="messages must not be empty"):
        model.chat([])

"""transformers' generate: shapes and padding, against transformers itself where
it is installed."""

import random

import pytest

import espalier
from espalier import hf
from conftest import SOURCE

FAMILIES = sorted(
    path.parent
    for path in (SOURCE / "tests/data/families").glob("*/config.json")
    if not path.parent.name.startswith("ctranslate2")
)

# Draws in which two beams' sums are 2e-6 apart, so that rounding ranks them.
NEAR_TIES = {("mistral_full", 1)}


@pytest.fixture(scope="module")
def model():
    with espalier.LLM(SOURCE / "tests/data/families/qwen3", num_threads=1) as made:
        yield made


def test_lists_are_padded_on_the_right_and_masked_on_the_left(model):
    numpy = pytest.importorskip("numpy")
    rows = [[5, 6, 7, 8], [9, 10]]
    ids = numpy.array([rows[0], [0, 0, *rows[1]]])
    mask = numpy.array([[1, 1, 1, 1], [0, 0, 1, 1]])
    out = hf.generate(
        model,
        ids,
        attention_mask=mask,
        num_beams=3,
        num_return_sequences=2,
        max_new_tokens=6,
        return_dict_in_generate=True,
        pad_token_id=1,
    )
    assert out.sequences.shape[0] == 4 and out.sequences_scores.shape == (4,)
    for i, row in enumerate(rows):
        alone = model.generate(
            row, num_beams=3, num_return_sequences=2, max_new_tokens=6
        )[0]
        for j, output in enumerate(alone.outputs):
            got = out.sequences[2 * i + j].tolist()
            begin = [0] * (4 - len(row)) + row + output.token_ids
            assert got[: len(begin)] == begin and set(got[len(begin) :]) <= {1}
    assert hf.generate(model, [[5, 6]], max_length=4)[0][:2] == [5, 6]
    assert hf.generate(model, [5, 6], max_length=4)[0][:2] == [5, 6]


@pytest.mark.parametrize(
    ("keywords", "name"),
    [
        ({"output_attentions": True}, "output_attentions"),
        ({"logits_processor": [1]}, "logits_processor"),
        ({"logits_processor": [object()]}, "logits_processor"),
        ({"penalty_alpha": 0.6}, "penalty_alpha"),
        ({"max_length": 2}, "max_length"),
        ({"max_time": "soon"}, "max_time"),
        ({"inputs": [[5, 6]]}, "input_ids"),
        ({"attention_mask": [[1, 1, 1]]}, "attention_mask"),
        ({"attention_mask": [[1, 1], [1, 1]]}, "attention_mask"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(model, keywords, name):
    with pytest.raises(ValueError, match=name) as caught:
        hf.generate(model, [[5, 6]], **keywords)
    assert caught.value.field == name or "unknown field" in str(caught.value)


def config_of(rng):
    beams = rng.choice([1, 2, 3, 5])
    config = {
        "num_beams": beams,
        "num_return_sequences": rng.randint(1, beams),
        "max_new_tokens": rng.randint(1, 12),
        "do_sample": False,
    }
    if beams > 1:
        config["length_penalty"] = rng.choice([-1.0, 0.0, 0.7, 1.0, 2.0])
        config["early_stopping"] = rng.choice([True, False, "never"])
    if rng.random() < 0.3:
        config["repetition_penalty"] = rng.choice([0.8, 1.3])
    if rng.random() < 0.3:
        config["no_repeat_ngram_size"] = rng.choice([1, 2, 3])
    if rng.random() < 0.3:
        config["min_new_tokens"] = rng.randint(0, config["max_new_tokens"])
    return config


@pytest.mark.parametrize("directory", FAMILIES, ids=lambda path: path.name)
def test_equals_transformers(directory):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.from_pretrained(directory)
    kind = (
        transformers.AutoModelForSeq2SeqLM
        if config.is_encoder_decoder
        else transformers.AutoModelForCausalLM
    )
    try:
        reference = kind.from_pretrained(directory, dtype=torch.float32).eval()
    except (ValueError, OSError) as error:
        pytest.skip(f"transformers does not load it: {error}")
    rng = random.Random(directory.name)
    with espalier.LLM(directory, num_threads=1) as model:
        for draw in range(6):
            keywords = config_of(rng)
            lengths = [rng.randint(1, 8) for _ in range(rng.randint(1, 3))]
            # transformers' processors see padding.
            if {"repetition_penalty", "no_repeat_ngram_size"} & set(keywords):
                lengths = lengths[:1] * len(lengths)
            width = max(lengths)
            ids = torch.zeros((len(lengths), width), dtype=torch.long)
            mask = torch.zeros_like(ids)
            for row, length in enumerate(lengths):
                tokens = [
                    rng.randrange(3, model.model["vocab_size"]) for _ in range(length)
                ]
                at = (
                    slice(0, length)
                    if config.is_encoder_decoder
                    else slice(width - length, width)
                )
                ids[row, at] = torch.tensor(tokens)
                mask[row, at] = 1
            more = {
                "attention_mask": mask,
                "return_dict_in_generate": True,
                "output_scores": True,
                "pad_token_id": 0,
            }
            if rng.random() < 0.3:  # the model's own limit and padding
                for given in (keywords, more):
                    given.pop("max_new_tokens", None)
                    given.pop("pad_token_id", None)
                keywords.pop("min_new_tokens", None)
            expected = reference.generate(ids, **more, **keywords)
            got = hf.generate(model, ids, **more, **keywords)
            assert expected.sequences.tolist() == got.sequences.tolist(), keywords
            if keywords["num_beams"] > 1:
                assert torch.allclose(
                    expected.sequences_scores, got.sequences_scores, atol=2e-4
                )
                if (directory.name, draw) not in NEAR_TIES:
                    assert expected.beam_indices.tolist() == got.beam_indices.tolist()

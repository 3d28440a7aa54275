"""lm-evaluation-harness over espalier, against its own `hf` model."""

import json
import random
import shutil

import pytest

from conftest import SOURCE

pytest.importorskip("lm_eval")
pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402

from espalier.integrations.lm_eval import EspalierLM  # noqa: E402

END, BEGINNING, SPACE, FIRST = 2, 3, 4, 5


def letter(token):
    return " " if token == SPACE else chr(0x4E00 + token)


@pytest.fixture(scope="module", params=["plain", "with a beginning"])
def models(tmp_path_factory, request):
    """Both models of a small random one, whose tokens are letters."""
    directory = tmp_path_factory.mktemp("qwen3")
    for path in (SOURCE / "tests/data/families/qwen3").iterdir():
        shutil.copy(path, directory)
    size = json.loads((directory / "config.json").read_text())["vocab_size"]
    vocabulary = {letter(i): i for i in range(size) if i != END} | {"<eos>": END}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>"}
    if request.param != "plain":
        # Its tokens begin with one of their own, and its defaults penalize.
        vocabulary["<bos>"] = vocabulary.pop(letter(BEGINNING))
        config["bos_token"] = "<bos>"
        (directory / "generation_config.json").write_text(
            json.dumps({"eos_token_id": [9, END], "repetition_penalty": 3.0})
        )
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    tokenizer.add_special_tokens([tokenizers.AddedToken("<eos>", special=True)])
    if request.param != "plain":
        tokenizer.add_special_tokens([tokenizers.AddedToken("<bos>", special=True)])
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", BEGINNING)]
        )
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    ours = EspalierLM(str(directory), dtype="float32", num_threads=1)
    theirs = HFLM(
        pretrained=str(directory),
        device="cpu",
        dtype="float32",
        max_length=ours.max_length,
    )
    assert (ours.eot_token_id, ours.prefix_token_id) == (
        theirs.eot_token_id,
        theirs.prefix_token_id,
    )
    return ours, theirs, size


def text_of(rng, size, length):
    return "".join(letter(rng.randrange(FIRST, size)) for _ in range(length))


def requests_of(kind, arguments):
    return [
        Instance(request_type=kind, doc={}, arguments=own, idx=i)
        for i, own in enumerate(arguments)
    ]


def test_log_likelihoods_are_those_of_hf(models):
    ours, theirs, size = models
    rng = random.Random(1)
    lengths = [rng.randint(0, 12) for _ in range(20)]
    lengths += range(ours.max_length - 5, ours.max_length + 3)
    arguments = []
    for length in lengths:
        context = text_of(rng, size, length)
        arguments += [
            (context, " " * bool(context) + text_of(rng, size, rng.randint(1, 4)))
            for _ in range(4)
        ]
    requests = requests_of("loglikelihood", arguments)
    found = ours.loglikelihood(requests, disable_tqdm=True)
    expected = theirs.loglikelihood(requests, disable_tqdm=True)
    for one, other in zip(found, expected, strict=True):
        assert one[0] == pytest.approx(other[0], rel=1e-6, abs=2e-5)
        assert one[1] == other[1]


def test_rolling_log_likelihoods_are_those_of_hf(models):
    ours, theirs, size = models
    longest = ours.max_length
    rng = random.Random(2)
    requests = requests_of(
        "loglikelihood_rolling",
        [
            (text_of(rng, size, length),)
            for length in (1, 2, longest - 1, longest, longest + 1, 2 * longest + 3)
        ],
    )
    found = ours.loglikelihood_rolling(requests, disable_tqdm=True)
    expected = theirs.loglikelihood_rolling(requests, disable_tqdm=True)
    assert found == pytest.approx(expected, rel=1e-6, abs=2e-5)


def test_generated_texts_are_those_of_hf(models):
    ours, theirs, size = models
    rng = random.Random(3)
    requests = requests_of(
        "generate_until",
        [
            (
                text_of(rng, size, rng.choice([1, 5, ours.max_length - 14])),
                {
                    "until": [letter(rng.randrange(FIRST, size))],
                    "max_gen_toks": rng.choice([1, 12]),
                },
            )
            for _ in range(20)
        ],
    )
    found = ours.generate_until(requests, disable_tqdm=True)
    assert found == theirs.generate_until(requests, disable_tqdm=True)


def test_what_is_not_supported_is_refused(models):
    ours = models[0]
    with pytest.raises(ValueError, match="penalty_alpha is not supported, got 0.6"):
        ours.generate_until(
            requests_of(
                "generate_until", [("a", {"penalty_alpha": 0.6, "max_gen_toks": 5})]
            ),
            disable_tqdm=True,
        )
    with pytest.raises(ValueError, match="max_gen_toks"):
        ours.generate_until(
            requests_of("generate_until", [("a", {"max_gen_toks": 1000})]),
            disable_tqdm=True,
        )
    with pytest.raises(ValueError, match="max_length"):
        EspalierLM(ours.llm.directory, max_length=ours.max_length + 1)

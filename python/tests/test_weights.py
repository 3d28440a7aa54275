"""LLM.update_weights: results are those of an LLM of the other weights."""

import json
import shutil
import struct
import threading

import numpy as np
import pytest

import espalier
from conftest import MODEL, SENTENCES


def read_safetensors(path):
    """The tensors of a file, as float32."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        stored = np.frombuffer(data[8 + length :][begin:end], np.uint8)
        if entry["dtype"] == "BF16":
            wide = (stored.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            wide = stored.view({"F32": np.float32, "F16": np.float16}[entry["dtype"]])
        tensors[name] = wide.astype(np.float32).reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, tensor in tensors.items():
        end = offset + tensor.nbytes
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header).encode()
    path.write_bytes(
        struct.pack("<Q", len(text))
        + text
        + b"".join(tensor.tobytes() for tensor in tensors.values())
    )


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A directory with other weights, and these."""
    directory = tmp_path_factory.mktemp("other") / "model"
    shutil.copytree(MODEL, directory)
    rng = np.random.default_rng(1)
    tensors = {
        name: (tensor * rng.uniform(0.9, 1.1, tensor.shape)).astype(np.float32)
        for name, tensor in read_safetensors(MODEL / "model.safetensors").items()
    }
    write_safetensors(directory / "model.safetensors", tensors)
    return directory, tensors


def answers_of(llm):
    answers = llm.generate(SENTENCES, num_beams=3, num_return_sequences=2)
    return [[(o.token_ids, o.score) for o in answer.outputs] for answer in answers]


def test_results_are_those_of_the_new_weights(other):
    directory, tensors = other
    with espalier.LLM(directory, num_threads=1) as expected:
        by_other = answers_of(expected)
    with espalier.LLM(MODEL, num_threads=1) as llm:
        by_model = answers_of(llm)
        assert by_model != by_other
        assert llm.weights_version == 0
        assert llm.generate("Hello")[0].weights_version == 0
        assert llm.update_weights(tensors) == 1
        assert answers_of(llm) == by_other
        assert llm.generate("Hello")[0].weights_version == 1
        assert llm.update_weights(MODEL, version=9) == 9
        assert answers_of(llm) == by_model
        names = sorted(tensors)
        for part in (names[::2], names[1::2]):
            llm.update_weights((name, tensors[name]) for name in part)
        assert answers_of(llm) == by_other
        assert llm.weights_version == 11


def test_tensors_of_torch(other):
    torch = pytest.importorskip("torch")
    directory, tensors = other
    with (
        espalier.LLM(directory, num_threads=1) as expected,
        espalier.LLM(MODEL, num_threads=1) as llm,
    ):
        given = {k: torch.tensor(v).requires_grad_() for k, v in tensors.items()}
        name = next(k for k, v in given.items() if v.dim() == 2)
        with torch.no_grad():  # not contiguous
            given[name] = given[name].t().contiguous().t()
        llm.update_weights(given.items())
        assert answers_of(llm) == answers_of(expected)
        rounded = {k: v.detach().bfloat16() for k, v in given.items()}
        llm.update_weights(rounded)
        by_bf16 = answers_of(llm)
        llm.update_weights({k: v.float() for k, v in rounded.items()})
        assert answers_of(llm) == by_bf16


@pytest.mark.parametrize("running", ["wait", "abort", "keep"])
def test_requests_run_meanwhile(other, running):
    directory, tensors = other
    with (
        espalier.LLM(MODEL, num_threads=1) as llm,
        espalier.LLM(directory, num_threads=1) as expected,
    ):
        results = []

        def generate():
            results.extend(
                llm.generate(
                    SENTENCES * 20, num_beams=4, return_exceptions=True, timeout=100
                )
            )

        thread = threading.Thread(target=generate)
        thread.start()
        for i in range(6):
            llm.update_weights(tensors if i % 2 == 0 else MODEL, running=running)
        thread.join()
        assert len(results) == 20 * len(SENTENCES)
        for result in results:
            if isinstance(result, BaseException):
                assert running == "abort" and isinstance(result, espalier.Unavailable)
        llm.update_weights(directory)
        assert answers_of(llm) == answers_of(expected)


def test_what_is_wrong_is_named(other):
    _, tensors = other
    name = next(iter(tensors))
    with espalier.LLM(MODEL, num_threads=1) as llm:
        before = answers_of(llm)
        for weights, options, text in [
            ({}, {}, "directory or tensors"),
            ({name: tensors[name].astype(np.float64)}, {}, name),
            ({name: [1.0, 2.0]}, {}, name),
            ({name: "text"}, {}, name),
            ({"nothing": tensors[name]}, {}, "nothing"),
            ({name: tensors[name][:1]}, {}, name),
            (tensors, {"running": "stop"}, 'must be wait, abort or keep, got "stop"'),
            (tensors, {"version": 0}, "version must be at least 1, got 0"),
            ("/nowhere", {}, "/nowhere"),
        ]:
            with pytest.raises((ValueError, LookupError), match=text):
                llm.update_weights(weights, **options)
        with pytest.raises(ValueError, match="timeout"):
            llm.update_weights(tensors, timeout=0)
        assert llm.weights_version == 0
        assert answers_of(llm) == before
    with pytest.raises(espalier.CancelledError):
        llm.update_weights(tensors)

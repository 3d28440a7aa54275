"""transformers' `model.generate` over an espalier engine:

>>> llm = espalier.LLM(directory)
>>> sequences = espalier.hf.generate(llm, input_ids, num_beams=4)

The arguments and what is returned are transformers': ids padded on the left by
an attention mask, a GenerationConfig and keywords over it, sequences padded on
the right, or with `return_dict_in_generate` an object with `sequences`,
`sequences_scores` and `beam_indices`. The search is transformers', token for token
(docs/groups.md), of each prompt alone: processors such as repetition_penalty do not
see its padding, as transformers' do. Samples are drawn from the same distribution by
other random numbers.

What is not supported is refused by its name: `logits_processor`,
`stopping_criteria`, `prefix_allowed_tokens_fn`, `assistant_model`, `streamer`,
`output_logits`, `output_attentions`, `output_hidden_states`. `output_scores` gives
`sequences_scores`, as there; `scores` of steps are not there.
"""

from __future__ import annotations

import json
import numbers
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ._espalier import RequestOutput
from .errors import invalid
from .llm import LLM
from .params import from_transformers, to_dict

__all__ = ["GenerateOutput", "generate"]

# transformers' limit where a config has none.
_DEFAULT_NEW_TOKENS = 20

_REFUSED = ("output_logits", "output_attentions", "output_hidden_states")


@dataclass
class GenerateOutput:
    """What `return_dict_in_generate` returns."""

    #: [prompts * num_return_sequences, length], padded on the right;
    #: decoders have the prompt in front.
    sequences: Any
    #: [prompts * num_return_sequences]; None unless beams were searched.
    sequences_scores: Any | None = None
    #: [prompts * num_return_sequences, generated]: the beam, of num_beams for each
    #: prompt, that a token was appended to; -1 after the end. None unless beams
    #: were searched.
    beam_indices: Any | None = None


def _lists(ids: Any) -> list[list[int]]:
    rows = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if rows and isinstance(rows[0], numbers.Integral):
        return [rows]
    return [list(row) for row in rows]


def _config_of(directory: str) -> dict[str, Any]:
    """Fields that transformers reads of a model's files and espalier does not
    need: pad_token_id."""
    fields: dict[str, Any] = {}
    for name in ("config.json", "generation_config.json"):
        try:
            with open(os.path.join(directory, name), encoding="utf-8") as file:
                fields |= {k: v for k, v in json.load(file).items() if v is not None}
        except OSError:
            continue
    return fields


def _like(values: Sequence[Any], model: Any, is_float: bool = False) -> Any:
    """Values as an array of the library that `model` is of; a list of a list."""
    kind = type(model).__module__.partition(".")[0]
    if kind == "torch":
        import torch

        dtype = torch.float32 if is_float else torch.long
        return torch.tensor(values, dtype=dtype, device=model.device)
    if kind == "numpy":
        import numpy

        return numpy.asarray(values, dtype=numpy.float32 if is_float else numpy.int64)
    return list(values)


def _new_tokens(params: dict[str, Any], defaults: dict[str, Any], taken: int) -> int:
    """How many tokens follow the first `taken`, padding included."""
    for fields in (params, defaults):
        if fields.get("max_new_tokens") is not None:
            return int(fields["max_new_tokens"])
        limit = fields.get("max_length")
        if limit is not None:
            if int(limit) <= taken:
                raise invalid(
                    "max_length", f"must be above the prompt's {taken} tokens", limit
                )
            return int(limit) - taken
    return _DEFAULT_NEW_TOKENS


def generate(
    model: LLM | str | os.PathLike[str],
    input_ids: Any = None,
    generation_config: Any = None,
    *,
    inputs: Any = None,
    attention_mask: Any = None,
    **keywords: Any,
) -> Any:
    """transformers' `generate`, of an LLM or of a directory that is loaded for
    the call. Raises as `LLM.generate` does."""
    if isinstance(model, (str, os.PathLike)):
        with LLM(model) as loaded:
            return generate(
                loaded,
                input_ids,
                generation_config,
                inputs=inputs,
                attention_mask=attention_mask,
                **keywords,
            )
    if (input_ids is None) == (inputs is None):
        raise invalid("input_ids", "must be given, or inputs in its place", input_ids)
    ids = input_ids if input_ids is not None else inputs
    fields = to_dict(generation_config, {})
    keywords = {
        k: v for k, v in keywords.items() if v is not None and k != "synced_gpus"
    }
    for name in _REFUSED:
        if keywords.get(name) or getattr(generation_config, name, None):
            raise invalid(name, "is not supported", True)

    def setting(name: str) -> Any:
        return keywords.get(name, getattr(generation_config, name, None))

    params = fields | from_transformers(keywords)
    facts = model.model
    defaults = facts["defaults"]
    start = facts["decoder_prompt"] if facts["has_encoder"] else []
    given_start = params.pop("decoder_start_token_id", None)
    if given_start is not None and start[:1] != [given_start]:
        raise invalid(
            "decoder_start_token_id", f"must be the model's, {start}", given_start
        )
    eos = params.get("eos_token_id", facts["eos_token_ids"])
    ends = [eos] if isinstance(eos, int) else list(eos or [])
    pad = setting("pad_token_id")
    if pad is None:
        pad = _config_of(model.directory).get("pad_token_id")
    given = _lists(ids)
    mask = None if attention_mask is None else _lists(attention_mask)
    if mask is None and pad is not None and pad not in ends:
        mask = [[int(token != pad) for token in row] for row in given]
    if pad is None:
        pad = ends[0] if ends else 0
    rows = given
    if mask is not None:
        if [len(row) for row in mask] != [len(row) for row in given]:
            raise invalid("attention_mask", "must have the shape of input_ids", mask)
        rows = [
            [token for token, keep in zip(row, kept, strict=True) if keep]
            for row, kept in zip(given, mask, strict=True)
        ]
    requests = []
    for row in given:
        own = {k: v for k, v in params.items() if k not in ("max_length", "min_length")}
        taken = len(start) if facts["has_encoder"] else len(row)
        own["max_new_tokens"] = _new_tokens(params, defaults, taken)
        if params.get("min_length") and "min_new_tokens" not in own:
            own["min_new_tokens"] = max(0, int(params["min_length"]) - taken)
        requests.append(own)
    num_beams = int(params.get("num_beams") or defaults.get("num_beams", 1))
    is_search = num_beams > 1
    is_dict = bool(setting("return_dict_in_generate"))
    if is_search and is_dict:
        for own in requests:
            own["beam_indices"] = True
    answers = model.generate(rows, requests)
    # A search of transformers ends rows with `pad_token_id or eos_token_id`.
    end = pad or (ends[0] if ends else 0) if is_search else pad
    sequences = [
        (start if facts["has_encoder"] else row) + output.token_ids
        for row, answer in zip(given, answers)
        for output in answer.outputs
    ]
    length = max((len(sequence) for sequence in sequences), default=0)
    padded = [sequence + [end] * (length - len(sequence)) for sequence in sequences]
    if not is_dict:
        return _like(padded, ids)
    scores = [output.score for answer in answers for output in answer.outputs]
    return GenerateOutput(
        sequences=_like(padded, ids),
        sequences_scores=_like(scores, ids, is_float=True) if is_search else None,
        beam_indices=(
            _like(_beam_indices(answers, num_beams), ids) if is_search else None
        ),
    )


def _beam_indices(answers: Sequence[RequestOutput], num_beams: int) -> list[list[int]]:
    rows = [
        [i * num_beams + beam for beam in output.beam_indices or ()]
        for i, answer in enumerate(answers)
        for output in answer.outputs
    ]
    length = max((len(row) for row in rows), default=0)
    return [row + [-1] * (length - len(row)) for row in rows]

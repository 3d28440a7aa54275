"""transformers' `model.generate` over an espalier engine:

>>> llm = espalier.LLM(directory)
>>> sequences = espalier.hf.generate(llm, input_ids, num_beams=4)

The arguments and what is returned are transformers': ids padded on the left by
an attention mask, a GenerationConfig and keywords over it, sequences padded on
the right, or with `return_dict_in_generate` an object with `sequences` and
`sequences_scores`. The search is transformers', token for token
(docs/groups.md), of each prompt alone: processors such as repetition_penalty do not
see its padding, as transformers' do. Samples are drawn from the same distribution by
other random numbers.

What is not supported is refused by its name: `logits_processor`,
`stopping_criteria`, `prefix_allowed_tokens_fn`, `assistant_model`, `streamer`,
`output_logits`, `output_attentions`, `output_hidden_states`. `output_scores` gives
`sequences_scores`, as there; `scores` of steps and `beam_indices` are not there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .llm import LLM
from .params import to_dict

__all__ = ["GenerateOutput", "generate"]

# transformers' limit where a config has none: of prompt and output together.
_DEFAULT_MAX_LENGTH = 20

_REFUSED = ("output_logits", "output_attentions", "output_hidden_states")


@dataclass
class GenerateOutput:
    """What `return_dict_in_generate` returns."""

    #: [prompts * num_return_sequences, length], padded on the right;
    #: decoders have the prompt in front.
    sequences: Any
    #: [prompts * num_return_sequences]; None unless beams were searched.
    sequences_scores: Any | None = None


def _rows(ids: Any, mask: Any) -> list[list[int]]:
    """The prompts without their padding."""
    rows = ids.tolist() if hasattr(ids, "tolist") else [list(row) for row in ids]
    if rows and isinstance(rows[0], int):
        rows = [rows]
    if mask is None:
        return rows
    masks = mask.tolist() if hasattr(mask, "tolist") else mask
    return [
        [token for token, keep in zip(row, kept, strict=True) if keep]
        for row, kept in zip(rows, masks, strict=True)
    ]


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


def _new_tokens(params: dict[str, Any], num_known: int) -> int:
    """transformers' max_new_tokens, else what max_length leaves."""
    if params.get("max_new_tokens") is not None:
        return int(params["max_new_tokens"])
    limit = params.get("max_length") or _DEFAULT_MAX_LENGTH
    left = int(limit) - num_known
    if left < 1:
        raise ValueError(
            f"max_length must be above the prompt's {num_known} tokens, got {limit}"
        )
    return left


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
    ids = input_ids if input_ids is not None else inputs
    if ids is None:
        raise ValueError("input_ids must be given")
    for name in _REFUSED:
        if keywords.get(name) or getattr(generation_config, name, None):
            raise ValueError(f"{name} is not supported, got True")
    pad = keywords.pop("pad_token_id", getattr(generation_config, "pad_token_id", None))
    returns_dict = keywords.pop(
        "return_dict_in_generate",
        getattr(generation_config, "return_dict_in_generate", False),
    )
    for name in (
        "use_cache",
        "synced_gpus",
        "output_scores",
        "output_logits",
        "output_attentions",
        "output_hidden_states",
    ):
        keywords.pop(name, None)
    params = to_dict(generation_config, keywords)
    facts = model.model
    start = facts["decoder_prompt"] if facts["has_encoder"] else []
    rows = _rows(ids, attention_mask)
    eos = params.get("eos_token_id", facts["eos_token_ids"])
    first_eos = eos if isinstance(eos, int) else [*(eos or [0])][0]
    if pad is None:
        pad = first_eos
    requests = []
    for row in rows:
        own = {k: v for k, v in params.items() if k not in ("max_length", "min_length")}
        num_known = len(start) if facts["has_encoder"] else len(row)
        own["max_new_tokens"] = _new_tokens(params, num_known)
        if params.get("min_length") and "min_new_tokens" not in own:
            own["min_new_tokens"] = max(0, int(params["min_length"]) - num_known)
        requests.append(own)
    answers = model.generate(rows, requests)
    sequences = []
    scores = []
    for row, answer in zip(rows, answers):
        known = list(start) if facts["has_encoder"] else None
        for output in answer.outputs:
            sequences.append((known, row, output.token_ids))
            scores.append(output.score)
    is_search = (params.get("num_beams") or 1) > 1
    # A search of transformers ends rows with `pad_token_id or eos_token_id`.
    padded = _padded(sequences, ids, pad, (pad or first_eos) if is_search else pad)
    if not returns_dict:
        return _like(padded, ids)
    return GenerateOutput(
        sequences=_like(padded, ids),
        sequences_scores=_like(scores, ids, is_float=True) if is_search else None,
    )


def _padded(sequences: list[Any], ids: Any, pad: int, end: int) -> list[list[int]]:
    """Rows of one length. Prompts of decoders stay padded on the left."""
    width = 0
    if not isinstance(ids, list) and len(getattr(ids, "shape", ())) == 2:
        width = int(ids.shape[1])
    full = []
    for known, row, tokens in sequences:
        head = known if known is not None else [pad] * (width - len(row)) + row
        full.append(head + tokens)
    length = max((len(row) for row in full), default=0)
    return [row + [end] * (length - len(row)) for row in full]

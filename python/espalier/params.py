"""Keywords, and the configurations of other libraries, as params of the request
format (docs/request_format.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ._espalier import Params
from .errors import invalid

# Fields of a request beside its params.
_REQUEST_FIELDS = ("template", "parse_special")

# Names of transformers' GenerationConfig for params of another name, and its
# fields that say nothing about results.
_HF_NAMES = {"stop_strings": "stop"}
_HF_WITHOUT_MEANING = frozenset(
    {
        "bos_token_id",
        "cache_config",
        "cache_implementation",
        "disable_compile",
        "low_memory",
        "output_attentions",
        "output_hidden_states",
        "output_logits",
        "output_scores",
        "pad_token_id",
        "remove_invalid_values",
        "return_dict_in_generate",
        "return_legacy_cache",
        "transformers_version",
        "use_cache",
        "_from_model_config",
    }
)


def from_transformers(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields under transformers' names as params; what says nothing of results
    is left out."""
    params = {}
    for name, value in fields.items():
        if name in _HF_WITHOUT_MEANING or value is None:
            continue
        if name == "max_time":
            if not isinstance(value, (int, float)):
                raise invalid(name, "must be a number of seconds", value)
            name, value = "deadline_ms", max(1, round(value * 1000))
        params[_HF_NAMES.get(name, name)] = value
    return params


def to_dict(config: Any, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Params of a call: those of `config`, and `keywords` in place of them.

    `config` is None, a dictionary, or a GenerationConfig of transformers.
    """
    if config is None:
        params: dict[str, Any] = {}
    elif isinstance(config, Mapping):
        params = dict(config)
    elif hasattr(config, "to_diff_dict"):
        params = from_transformers(config.to_diff_dict())
    else:
        raise TypeError(
            "params must be a dictionary of fields or a GenerationConfig, got "
            f"{type(config).__name__}"
        )
    params.update(keywords)
    return params


def _plain(value: Any) -> Any:
    """Numbers and arrays of other libraries as Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no value of a param")


def _json(value: Any) -> str:
    return json.dumps(value, default=_plain, allow_nan=False)


def _raise_wrong(fields: Mapping[str, Any]) -> None:
    """Raises for the first field that has no JSON."""
    for name, value in fields.items():
        try:
            _json(value)
        except (TypeError, ValueError):
            wanted = "finite" if isinstance(value, float) else "a value of JSON"
            raise invalid(name, f"must be {wanted}", value) from None


def _make(params: dict[str, Any]) -> Params:
    line: dict[str, Any] = {"prompt": "-"}
    for name in _REQUEST_FIELDS:
        if name in params:
            line[name] = params.pop(name)
    line["params"] = params
    try:
        text = _json(line)
    except (TypeError, ValueError):
        _raise_wrong(params | line)
        raise
    return Params(text)


_SCALARS = (str, int, float, bool, type(None))


# With the types: 1, 1.0 and True are equal.
@lru_cache(maxsize=1024)
def _of_scalars(items: tuple[tuple[str, Any, type], ...]) -> Params:
    return _make({name: value for name, value, _ in items})


def parse(config: Any, keywords: Mapping[str, Any]) -> Params:
    """Checks names and types of a call's params.

    Raises InvalidArgument naming the field.
    """
    if config is None:
        key = tuple((name, value, type(value)) for name, value in keywords.items())
        if all(kind in _SCALARS for _, _, kind in key):
            return _of_scalars(key)
    elif isinstance(config, Params) and not keywords:
        return config
    return _make(to_dict(config, keywords))

"""espalier as a model of lm-evaluation-harness:

    python -m espalier.integrations.lm_eval run --model espalier \\
        --model_args pretrained=DIRECTORY --device cpu --tasks hellaswag

All that `lm-eval` takes; `model_args` has `pretrained` and the options of
espalier.LLM, and the harness's own `max_length`, `max_gen_toks`, `add_bos_token` and
`prefix_token_id`. `batch_size` is taken and changes nothing: all requests run together.

Results are those of the harness's `hf` model with the same `max_length`, which is one
less than the model's context unless it is given. Continuations of one context are
scored together, with one prefill. `--apply_chat_template` is not supported.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from ..errors import invalid
from ..llm import LLM

__all__ = ["EspalierLM"]

_DTYPES = {"auto": "", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}
# Params of the request that the harness's tasks set under these names.
_GEN_KWARGS = ("do_sample", "temperature", "top_p", "top_k", "num_beams")
_AT_ONCE = 1024


@register_model("espalier")
class EspalierLM(TemplateLM):  # type: ignore[misc]
    """A model directory and its engine."""

    def __init__(
        self,
        pretrained: str,
        *,
        device: str | None = None,
        dtype: str = "auto",
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        add_bos_token: bool | None = None,
        prefix_token_id: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.llm = LLM(
            pretrained,
            # The harness's default, which is the CPU there, too, without a GPU.
            device="auto" if device in (None, "cuda:0") else device,
            dtype=_DTYPES.get(dtype, dtype),
            **options,
        )
        # The last token that is scored has a position, too, here.
        longest = int(self.llm.model["max_context"]) - 1
        self.max_length: int = max_length or longest
        if not 0 < self.max_length <= longest:
            raise invalid("max_length", f"must be in [1, {longest}]", max_length)
        self.max_gen_toks = max_gen_toks
        self._add_bos = add_bos_token
        self._prefix = prefix_token_id

    @property
    def eot_token_id(self) -> int:
        eos = self.llm.tokenizer.eos_token_id
        return int(self.llm.model["eos_token_ids"][0]) if eos is None else eos

    @property
    def prefix_token_id(self) -> int:
        bos = self.llm.tokenizer.bos_token_id
        for token in (self._prefix, bos):
            if token is not None:
                return token
        return self.eot_token_id

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        if add_special_tokens is None:
            add_special_tokens = self._add_bos is not False and not string.startswith(
                self._text_of(self.prefix_token_id)
            )
        return self.llm.tokenizer.encode(
            string, add_special_tokens=add_special_tokens, parse_special=True
        )

    def _text_of(self, token: int) -> str:
        return self.llm.tokenizer.decode([token], skip_special_tokens=False)

    def _loglikelihood_tokens(
        self,
        requests: Iterable[tuple[Any, Sequence[int], Sequence[int]]],
        disable_tqdm: bool = False,
        **_: Any,
    ) -> list[tuple[float, bool]]:
        requests = list(requests)
        for i, (_text, _context, continuation) in enumerate(requests):
            if len(continuation) > self.max_length:
                raise invalid(
                    f"requests[{i}]",
                    f"must have a continuation of at most {self.max_length} tokens",
                    len(continuation),
                )
        # Continuations by their contexts, cut on the left as `hf` cuts them.
        contexts: dict[tuple[int, ...], list[int]] = {}
        continuations: list[Sequence[int]] = []
        for _text, context, continuation in requests:
            kept = max(1, self.max_length + 1 - len(continuation))
            contexts.setdefault(tuple(context[-kept:]), []).append(len(continuations))
            continuations.append(continuation)
        results: list[tuple[float, bool]] = [(0.0, True)] * len(continuations)
        with tqdm(total=len(results), disable=disable_tqdm) as bar:
            for some in _chunks(contexts.items()):
                scores = self.llm.score(
                    [list(context) for context, _ in some],
                    [[continuations[i] for i in places] for _, places in some],
                )
                for (_context, places), found in zip(some, scores):
                    for i, score in zip(places, found):
                        results[i] = (score.cumulative_logprob, score.is_greedy)
                        if requests[i][0] is not None:
                            self.cache_hook.add_partial(
                                "loglikelihood", requests[i][0], results[i]
                            )
                    bar.update(len(places))
        return results

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        windows: list[tuple[Any, Sequence[int], Sequence[int]]] = []
        counts = []
        for request in requests:
            (text,) = request.args
            own = [
                (None, *make_disjoint_window(window))
                for window in get_rolling_token_windows(
                    token_list=self.tok_encode(text),
                    prefix_token=self.prefix_token_id,
                    max_seq_len=self.max_length,
                    context_len=1,
                )
            ]
            windows += own
            counts.append(len(own))
        found = iter(self._loglikelihood_tokens(windows, disable_tqdm=disable_tqdm))
        return [
            sum(log_prob for log_prob, _ in itertools.islice(found, count))
            for count in counts
        ]

    def generate_until(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[str]:
        eos = self._text_of(self.eot_token_id)
        defaults = self.llm.model["defaults"]
        prompts, params, stops = [], [], []
        for request in requests:
            text, given = request.args
            kwargs = normalize_gen_kwargs(given, self.max_gen_toks)
            until = handle_stop_sequences(kwargs.pop("until", None), eos=eos)
            length = int(kwargs.pop("max_gen_toks"))
            own = {k: v for k, v in kwargs.items() if k in _GEN_KWARGS}
            unknown = kwargs.keys() - own.keys()
            if unknown:
                name = min(unknown)
                raise invalid(name, "is not supported", kwargs[name])
            if length >= self.max_length:
                raise invalid(
                    "max_gen_toks",
                    f"must be below max_length {self.max_length}",
                    length,
                )
            if not own.get("do_sample"):  # then the filters say nothing
                own = {k: v for k, v in own.items() if k == "num_beams"}
                own["do_sample"] = False
            elif "top_k" not in own and "top_k" not in defaults:
                own["top_k"] = 50  # of transformers
            stops.append([stop for stop in until if stop])
            prompts.append(self.tok_encode(text)[length - self.max_length :])
            params.append(
                own
                | {
                    "max_new_tokens": length,
                    "stop": [stop for stop in stops[-1] if stop != eos],
                }
            )
        answers = self.llm.generate(prompts, params, use_tqdm=not disable_tqdm)
        results = []
        for request, answer, own_stops in zip(requests, answers, stops):
            text = self.llm.tokenizer.decode(answer.outputs[0].token_ids)
            for stop in own_stops:
                text = text.split(stop)[0]
            self.cache_hook.add_partial("generate_until", request.args, text)
            results.append(text)
        return results


def _chunks(items: Iterable[Any]) -> Iterable[list[Any]]:
    rest = iter(items)
    while some := list(itertools.islice(rest, _AT_ONCE)):
        yield some


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    # The class of this module, not of __main__, is the registered one.
    cli_evaluate()

"""espalier as what TRL's GRPOTrainer samples with:

    llm = espalier.LLM("directory", device="auto")
    trainer = trl.GRPOTrainer(..., rollout_func=rollout_func(llm))

Before a step's samples the engine gets the weights that the trainer has then
(`LLM.update_weights`), so that samples are of the policy that is trained. Samples
of one prompt share its prefill.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from ..errors import invalid
from ..llm import LLM

__all__ = ["rollout_func"]


def rollout_func(
    llm: LLM, **params: Any
) -> Callable[[list[Any], Any], dict[str, list[Any]]]:
    """A `rollout_func` of GRPOTrainer.

    Its settings of generation are taken from the trainer (`temperature`, `top_p`,
    `top_k`, `min_p`, `repetition_penalty`, `max_completion_length`); `params`, under
    the names of docs/request_format.md, come before them. `logprobs` of the result are
    those that tokens were drawn by. The model must have its weights under the names of
    `llm`'s directory: adapters (PEFT) must be merged before.
    """
    for name in ("num_return_sequences", "num_beams", "logprobs"):
        if name in params:
            raise invalid(name, "is set by the trainer", params[name])
    loaded: int | None = None

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        nonlocal loaded
        step = trainer.state.global_step
        if step != loaded:
            model = trainer.accelerator.unwrap_model(trainer.model)
            llm.update_weights(model.named_parameters())
            loaded = step
        settings = _settings_of(trainer) | params
        groups = [(key, len(list(same))) for key, same in itertools.groupby(prompts)]
        ids = [_tokens_of(prompt, trainer.processing_class) for prompt, _ in groups]
        answers = llm.generate(
            ids, [settings | {"num_return_sequences": n} for _, n in groups]
        )
        result: dict[str, list[Any]] = {
            "prompt_ids": [],
            "completion_ids": [],
            "logprobs": [],
        }
        for prompt_ids, answer in zip(ids, answers, strict=True):
            for output in answer.outputs:
                result["prompt_ids"].append(prompt_ids)
                result["completion_ids"].append(output.token_ids)
                given: Any = output.logprobs
                pairs = zip(output.token_ids, given, strict=True)
                result["logprobs"].append([best[t].logprob for t, best in pairs])
        return result

    return rollout


def _settings_of(trainer: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "do_sample": True,
        "max_new_tokens": trainer.max_completion_length,
        "temperature": trainer.temperature,
        "top_p": trainer.top_p,
        "top_k": trainer.top_k,
        "min_p": trainer.min_p or 0.0,
        "repetition_penalty": trainer.repetition_penalty,
        "logprobs": 0,
    }
    neutral = {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
    }
    if any(settings[name] != value for name, value in neutral.items()):
        settings["logprobs_mode"] = "processed_logprobs"
    return settings


def _tokens_of(prompt: Any, processing: Any) -> list[int]:
    """Tokens of a text, or of a conversation."""
    if isinstance(prompt, str):
        ids = processing(text=[prompt])["input_ids"][0]
    else:
        ids = processing.apply_chat_template(
            prompt, add_generation_prompt=True, tokenize=True, return_dict=False
        )
    return [int(token) for token in ids]

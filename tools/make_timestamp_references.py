"""What openai's Whisper makes of a small model with its rule of timestamps.

    python -m tools.make_timestamp_references tests/data/speech/whisper

Writes `timestamps.jsonl` there: the number of the features (of
tools/make_whisper_models.py), parameters, the tokens of the rule and the best
hypothesis with the sum of its log-probabilities. The filters, GreedyDecoder and
BeamSearchDecoder are those of openai/whisper's decoding.py; logits are of
transformers in float64. openai lets an end that ranks behind the beams finish,
and CTranslate2 does not: a beam search is kept only if both agree.
"""

import argparse
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file
from whisper.decoding import (
    ApplyTimestampRules,
    BeamSearchDecoder,
    GreedyDecoder,
    Inference,
    LogitFilter,
    MaximumLikelihoodRanker,
    SuppressTokens,
)

from tools.embedded_model import write_jsonl
from tools.family_shapes import VOCAB_SIZE
from tools.make_whisper_models import NUM_FEATURES, START, Reference

Row = dict[str, Any]

END, NO_TIMESTAMPS, FIRST_TIME = 34, 39, 40
NUM_REQUESTS = 40
NUM_NOISY_RUNS = 2
NOISE = 1e-4


class SuppressFirst(LogitFilter):
    """As SuppressBlank, of given tokens."""

    def __init__(self, tokens: list[int], sample_begin: int):
        self.tokens = tokens
        self.sample_begin = sample_begin

    def apply(self, logits: torch.Tensor, tokens: torch.Tensor) -> None:
        if tokens.shape[1] == self.sample_begin:
            logits[:, self.tokens] = -torch.inf


class Bias(LogitFilter):
    """Ends are rare in a random model without it."""

    def __init__(self, biases: dict[str, float]):
        self.biases = biases

    def apply(self, logits: torch.Tensor, tokens: torch.Tensor) -> None:
        for token, bias in self.biases.items():
            logits[:, int(token)] += bias


class Uncached(Inference):
    """Nothing is kept of a step, so beams move by themselves."""

    def logits(self, tokens: torch.Tensor, audio: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def rearrange_kv_cache(self, source_indices: list[int]) -> None:
        pass


class Case:
    def __init__(self, reference: Reference, features: torch.Tensor, params: Row,
                 max_initial: int | None, noise: torch.Generator | None = None):
        self.reference = reference
        self.features = features
        self.params = params
        self.noise = noise
        self.prompt = [START, *params["decoder_input_ids"]]
        begin = len(self.prompt)
        tokenizer = SimpleNamespace(
            no_timestamps=NO_TIMESTAMPS, timestamp_begin=FIRST_TIME, eot=END
        )
        self.filters = [
            Bias(params["logit_bias"]),
            SuppressFirst(params["begin_suppress_tokens"], begin),
            SuppressTokens(params["suppress_tokens"]),
            ApplyTimestampRules(tokenizer, begin, max_initial),
        ]

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        rows = [
            self.reference.logits(self.features, sequence)[-1]
            for sequence in tokens.tolist()
        ]
        logits = torch.stack(rows)
        if self.noise is not None:
            logits += NOISE * torch.randn(logits.shape, generator=self.noise)
        for logit_filter in self.filters:
            logit_filter.apply(logits, tokens)
        return logits

    def by_openai(self) -> Row:
        num_beams = self.params["num_beams"]
        decoder = (
            GreedyDecoder(0.0, END)
            if num_beams == 1
            else BeamSearchDecoder(num_beams, END, Uncached(), self.params["patience"])
        )
        decoder.reset()
        tokens = torch.tensor([self.prompt] * num_beams)
        sums = torch.zeros(num_beams)
        for _ in range(self.params["max_new_tokens"]):
            tokens, completed = decoder.update(tokens, self.logits(tokens), sums)
            if completed:
                break
        found, found_sums = decoder.finalize(
            tokens.reshape(1, num_beams, -1), sums.reshape(1, -1)
        )
        texts = [
            [self.up_to_end(t.tolist()) for t in sequences] for sequences in found
        ]
        lists = [[float(x) for x in row] for row in found_sums]
        best = MaximumLikelihoodRanker(None).rank(
            [[torch.tensor(t) for t in texts[0]]], lists
        )[0]
        return self.hypothesis(texts[0][best], lists[0][best])

    def up_to_end(self, tokens: list[int]) -> list[int]:
        tokens = tokens[len(self.prompt) :]
        return tokens[: tokens.index(END)] if END in tokens else tokens

    def hypothesis(self, tokens: list[int], cum_log_prob: float) -> Row:
        is_ended = len(tokens) < self.params["max_new_tokens"]
        return {
            "tokens": tokens + [END] * is_ended,
            "score": round(cum_log_prob / max(1, len(tokens)), 6),
            "cum_log_prob": round(cum_log_prob, 6),
        }

    def by_joint_candidates(self) -> Row:
        """Ends count among the first num_beams of all candidates alone."""
        num_beams = self.params["num_beams"]
        beams = [(0.0, list[int]())]
        finished: list[tuple[float, list[int]]] = []
        for step in range(self.params["max_new_tokens"]):
            logits = self.logits(torch.tensor([self.prompt + t for _, t in beams]))
            scores = torch.log_softmax(logits, dim=-1).double()
            candidates = [
                (total + float(scores[i, token]), [*tokens, token])
                for i, (total, tokens) in enumerate(beams)
                for token in range(VOCAB_SIZE)
                if scores[i, token] > -torch.inf
            ]
            candidates.sort(key=lambda candidate: -candidate[0])
            is_last = step + 1 == self.params["max_new_tokens"]
            finished += [
                c for c in candidates[:num_beams] if c[1][-1] == END or is_last
            ]
            beams = [c for c in candidates if c[1][-1] != END][:num_beams]
            if len(finished) >= round(num_beams * self.params["patience"]):
                break
        ended = [
            self.hypothesis(t[:-1] if t[-1] == END else t, total)
            for total, t in finished
        ]
        return max(ended, key=lambda row: row["score"])


def draw_params(rng: random.Random) -> Row:
    num_beams = rng.choice([1, 2, 5, 5])
    max_new_tokens = rng.choice([6, 14, 24])
    banned = rng.sample([i for i in range(FIRST_TIME) if i != END], 12)
    params: Row = {
        "num_beams": num_beams,
        "max_new_tokens": max_new_tokens,
        "eos_token_id": END,
        "decoder_input_ids": rng.choices(range(35, 39), k=rng.randint(1, 3)),
        "suppress_tokens": sorted(banned),
        "begin_suppress_tokens": [7, END],
        "logit_bias": {str(END): rng.choice([2.0, 4.0, 6.0])},
        "length_counts_eos": False,
    }
    if num_beams > 1:
        params |= {"early_stopping": True, "patience": rng.choice([0.5, 1.0, 2.0])}
    return params


def same_text(a: Row, b: Row) -> bool:
    return a["tokens"] == b["tokens"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="tests/data/speech/whisper")
    directory = parser.parse_args().model
    torch.set_num_threads(1)
    reference = Reference(directory)
    tensors = load_file(directory / "logits.safetensors")
    rng = random.Random(41)
    rows: list[Row] = []
    num_different = 0
    while len(rows) < NUM_REQUESTS:
        i = rng.randrange(NUM_FEATURES)
        max_initial = rng.choice([None, 0, 4])
        params = draw_params(rng)
        case = (reference, tensors[f"features.{i}"], params, max_initial)
        best = Case(*case).by_openai()
        if params["num_beams"] > 1:
            if not same_text(best, Case(*case).by_joint_candidates()):
                num_different += 1
                continue
        noises = [torch.Generator().manual_seed(s) for s in range(NUM_NOISY_RUNS)]
        if all(same_text(best, Case(*case, noise).by_openai()) for noise in noises):
            timestamps = {"first_time": FIRST_TIME, "end": END,
                          "no_timestamps": NO_TIMESTAMPS}
            if max_initial is not None:
                timestamps["max_initial_step"] = max_initial
            rows.append({"features": i, "params": params,
                         "timestamps": timestamps, "hypotheses": [best]})
    write_jsonl(directory / "timestamps.jsonl", rows)
    print(f"{num_different} searches differ between openai's rule and CTranslate2's")


if __name__ == "__main__":
    main()

"""TRL's GRPOTrainer, whose samples a server draws: `rollout_func` calls
/inference/v1/generate. The log-probabilities that come back are the trainer's.

    trl_test.py PROGRAM CACHE [unittest's arguments]
                                                         (live/environment.py)
"""

import json
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from live import environment
from live.replica import Replica

if __name__ == "__main__":
    environment.restart_with_packages(Path(__file__).with_name("trl.txt"))

import datasets
import torch
import transformers
import trl

NUM_SAMPLES = 4
PROMPTS = ["Where is the station?", "It rains.", "She sings.", "We are here."]


def log_probs_of(model, prompt: list[int], completion: list[int]) -> list[float]:
    ids = torch.tensor([prompt + completion])
    with torch.no_grad():
        logits = model(ids).logits[0, len(prompt) - 1:-1].float()
    return logits.log_softmax(-1).gather(
        1, torch.tensor(completion)[:, None])[:, 0].tolist()


class TrlTest(unittest.TestCase):
    def setUp(self) -> None:
        self.server = self.enterContext(Replica())
        self.difference = 0.0
        self.num_calls = 0

    def generate(self, tokens: list[int]) -> list[dict]:
        body = {"token_ids": tokens, "sampling_params": {
            "n": NUM_SAMPLES, "temperature": 1.0, "max_tokens": 12,
            "logprobs": 0}}
        request = urllib.request.Request(
            f"{self.server.url}/inference/v1/generate",
            json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["choices"]

    def rollout(self, prompts: list[str], trainer) -> dict:
        found = {"prompt_ids": [], "completion_ids": [], "logprobs": []}
        is_first = self.num_calls == 0  # before the weights change
        self.num_calls += 1
        # Each prompt stands there once for each of its samples.
        for prompt in prompts[::NUM_SAMPLES]:
            tokens = trainer.processing_class(prompt)["input_ids"]
            for choice in self.generate(tokens):
                given = [place["logprob"]
                         for place in choice["logprobs"]["content"]]
                if is_first:
                    own = log_probs_of(trainer.model, tokens,
                                       choice["token_ids"])
                    self.difference = max(
                        self.difference,
                        *(abs(a - b) for a, b in zip(given, own, strict=True)))
                found["prompt_ids"].append(tokens)
                found["completion_ids"].append(choice["token_ids"])
                found["logprobs"].append(given)
        return found

    def test_a_trainer_trains(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            environment.MODEL)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            environment.MODEL, dtype=torch.float32)
        trainer = trl.GRPOTrainer(
            model=model, processing_class=tokenizer,
            reward_funcs=lambda completions, **_: [
                float(len(text)) for text in completions],
            train_dataset=datasets.Dataset.from_dict({"prompt": PROMPTS}),
            rollout_func=self.rollout,
            args=trl.GRPOConfig(
                folder, num_generations=NUM_SAMPLES, max_steps=2,
                per_device_train_batch_size=NUM_SAMPLES, use_cpu=True,
                bf16=False, max_completion_length=12, report_to=[],
                save_strategy="no", logging_steps=1))
        trainer.train()
        self.assertGreaterEqual(self.num_calls, 2)
        self.assertLess(self.difference, 1e-3)
        print(f"log-probabilities differ by at most {self.difference:.2g}")


if __name__ == "__main__":
    environment.main()

"""The decode step of vLLM on one GPU, with random weights in bf16.

    python benchmarks/peers/vllm_step.py 8b:1x4/128 8b:8s4/512

For a Python that has vLLM (its API as of 0.26.0). A case is
MODEL:REQUESTSxSAMPLES/PROMPT, of the models of torch_graph.py: samples are
independent, greedy where a request has one and drawn at temperature 1 otherwise.
vLLM has no beam search in its engine, so a step of so many samples is what comes
nearest: it selects no candidates and reorders no beams. MODEL:REQUESTSsSAMPLES/PROMPT
draws with top_p 0.9.

Prints a markdown table. A step is the time of 64 new tokens less that of 1, by 63,
where prompts are in the prefix cache: the median of the repeats, with the least and
most. "Kernels" is the sum of what kernels and copies take of a step (torch's
profiler), so the part of a step that a faster host would not save.
"""

import argparse
import json
import os
import pathlib
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

TOKENS = 64
WARM_UP, REPEATS = 2, 9
MAX_SEQUENCES = 256
MAX_POSITIONS = 16384

# config.json beside what all have; the part of the GPU's memory that is vLLM's.
MODELS = {
    "68m": (
        {
            "hidden_size": 768,
            "num_hidden_layers": 2,
            "num_attention_heads": 12,
            "num_key_value_heads": 12,
            "head_dim": 64,
            "intermediate_size": 3072,
            "vocab_size": 32000,
        },
        0.3,
    ),
    "1b": (
        {
            "hidden_size": 2048,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "intermediate_size": 8192,
            "vocab_size": 128256,
            "tie_word_embeddings": True,
        },
        0.3,
    ),
    "8b": (
        {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 14336,
            "vocab_size": 128256,
        },
        0.5,
    ),
}


@dataclass(frozen=True)
class Case:
    name: str
    model: str
    requests: int
    samples: int
    top_p: float
    prompt: int

    @staticmethod
    def parse(text: str) -> "Case":
        match = re.fullmatch(r"([\w.]+):(\d+)([xs])(\d+)/(\d+)", text)
        if match is None or match[1] not in MODELS:
            raise argparse.ArgumentTypeError(f"no case: {text}")
        case = Case(
            name=text,
            model=match[1],
            requests=int(match[2]),
            samples=int(match[4]),
            top_p=0.9 if match[3] == "s" else 1.0,
            prompt=int(match[5]),
        )
        if not 1 <= case.requests * case.samples <= MAX_SEQUENCES:
            raise argparse.ArgumentTypeError(f"more than {MAX_SEQUENCES} rows: {text}")
        if not 1 <= case.prompt <= MAX_POSITIONS - TOKENS:
            raise argparse.ArgumentTypeError(f"a prompt that has no room: {text}")
        return case

    def is_greedy(self) -> bool:
        return self.samples == 1 and self.top_p == 1.0


def write_model(name: str, directory: pathlib.Path) -> None:
    """A directory that vLLM reads: no weights, and a tokenizer that is not used."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    config = MODELS[name][0] | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": MAX_POSITIONS,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "bfloat16",
    }
    (directory / "config.json").write_text(json.dumps(config))
    words = {f"t{i}": i for i in range(config["vocab_size"])}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="t0")),
        bos_token="t1",
        eos_token="t2",
    )
    tokenizer.save_pretrained(directory)


def milliseconds(body: Callable[[], None]) -> float:
    begin = time.perf_counter()
    body()
    return (time.perf_counter() - begin) * 1e3


def kernel_milliseconds(body: Callable[[], None]) -> float:
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        body()
        torch.cuda.synchronize()
    on_device = (e for e in trace.events() if str(e.device_type).endswith("CUDA"))
    return sum(event.device_time_total for event in on_device) / 1e3


def per_step(of_many: float, of_one: float) -> float:
    return (of_many - of_one) / (TOKENS - 1)


def measure(llm, case: Case) -> str:
    """A line of the table."""
    from vllm import SamplingParams

    draw = random.Random(1)
    vocabulary = MODELS[case.model][0]["vocab_size"]
    prompts = [
        {"prompt_token_ids": [draw.randrange(5, vocabulary) for _ in range(case.prompt)]}
        for _ in range(case.requests)
    ]

    def run(num_tokens: int) -> None:
        params = SamplingParams(
            n=case.samples,
            temperature=0.0 if case.is_greedy() else 1.0,
            top_p=case.top_p,
            max_tokens=num_tokens,
            ignore_eos=True,
            detokenize=False,
        )
        answers = llm.generate(prompts, params, use_tqdm=False)
        lengths = [len(o.token_ids) for answer in answers for o in answer.outputs]
        if lengths != [num_tokens] * (case.requests * case.samples):
            raise RuntimeError(f"{case.name}: outputs of {lengths} tokens")

    for _ in range(WARM_UP):
        run(1)
        run(TOKENS)
    steps = [
        per_step(milliseconds(lambda: run(TOKENS)), milliseconds(lambda: run(1)))
        for _ in range(REPEATS)
    ]
    kernels = per_step(
        kernel_milliseconds(lambda: run(TOKENS)), kernel_milliseconds(lambda: run(1))
    )
    return (
        f"| {case.name} | {statistics.median(steps):.3f} | "
        f"{min(steps):.3f} to {max(steps):.3f} | {kernels:.3f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="+", type=Case.parse, metavar="CASE")
    args = parser.parse_args()
    # In one process, where the profiler sees the kernels.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    import vllm

    print(
        f"vLLM {vllm.__version__}, in one process, bf16, prefix caching, "
        f"{TOKENS} new tokens\n\n"
        "| case | ms a step | least and most | kernels |\n|---|---|---|---|",
        flush=True,
    )
    for model in dict.fromkeys(case.model for case in args.cases):
        with tempfile.TemporaryDirectory() as directory:
            write_model(model, pathlib.Path(directory))
            llm = vllm.LLM(
                model=directory,
                load_format="dummy",
                dtype="bfloat16",
                max_model_len=MAX_POSITIONS,
                max_num_seqs=MAX_SEQUENCES,
                gpu_memory_utilization=MODELS[model][1],
                enable_prefix_caching=True,
                generation_config="vllm",
                disable_log_stats=True,
            )
            for case in args.cases:
                if case.model == model:
                    print(measure(llm, case), flush=True)
            del llm  # its memory is the next model's


if __name__ == "__main__":
    main()

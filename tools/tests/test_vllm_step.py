"""benchmarks/peers/vllm_step.py, with stand-ins for vLLM and what it brings."""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "benchmarks/peers/vllm_step.py"

# An engine that takes 0.2 ms a token by a clock of its own, of which kernels take 0.1.
MODULES = {
    "vllm.py": """
        import json, pathlib, time, types
        __version__ = "0.0"
        last = types.SimpleNamespace(tokens=0)
        seconds = 0.0
        time.perf_counter = lambda: seconds
        class SamplingParams:
            def __init__(self, **fields):
                self.__dict__.update(fields)
        class LLM:
            def __init__(self, model, **options):
                config = json.loads((pathlib.Path(model) / "config.json").read_text())
                print("loads", config["hidden_size"], "words", config["vocab_size"])
            def generate(self, prompts, params, use_tqdm):
                global seconds
                seconds += 2e-4 * params.max_tokens
                last.tokens = params.max_tokens
                answers = []
                for prompt in prompts:
                    count = params.max_tokens - (len(prompt["prompt_token_ids"]) == 7)
                    one = types.SimpleNamespace(token_ids=[0] * count)
                    answers.append(types.SimpleNamespace(outputs=[one] * params.n))
                print("draws", params.temperature, params.top_p)
                return answers
        """,
    "torch/__init__.py": """
        import types
        cuda = types.SimpleNamespace(synchronize=lambda: None)
        """,
    "torch/profiler.py": """
        import types, vllm
        ProfilerActivity = types.SimpleNamespace(CUDA=0)
        class profile:
            def __init__(self, activities):
                pass
            def __enter__(self):
                return self
            def __exit__(self, *error):
                pass
            def events(self):
                Event = types.SimpleNamespace
                return [Event(device_type="DeviceType.CUDA",
                              device_time_total=100 * vllm.last.tokens),
                        Event(device_type="DeviceType.CPU", device_time_total=1e9)]
        """,
    "tokenizers/__init__.py": "class Tokenizer:\n    def __init__(self, model): pass\n",
    "tokenizers/models.py": "def WordLevel(words, unk_token): pass\n",
    "transformers.py": """
        class PreTrainedTokenizerFast:
            def __init__(self, **fields):
                pass
            def save_pretrained(self, directory):
                pass
        """,
}


class VllmStepTest(unittest.TestCase):
    def run_cases(self, *cases: str) -> subprocess.CompletedProcess:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        for name, text in MODULES.items():
            path = pathlib.Path(directory.name) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return subprocess.run(
            [sys.executable, "-B", PROGRAM, *cases],
            env={**os.environ, "PYTHONPATH": directory.name},
            capture_output=True,
            text=True,
            check=False,
        )

    def test_each_case_has_a_line_and_each_model_is_loaded_once(self) -> None:
        done = self.run_cases("1b:2x1/5", "68m:1x4/9", "1b:3s2/6")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("loads"), 2)
        lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
        names = [line.split()[1] for line in lines]
        self.assertEqual(names, ["case", "1b:2x1/5", "1b:3s2/6", "68m:1x4/9"])
        for line in lines[1:]:
            self.assertEqual(line.split("|")[2].strip(), "0.200")
            self.assertEqual(line.split("|")[4].strip(), "0.100")

    def test_one_sample_is_greedy_and_several_are_drawn(self) -> None:
        for case, drawn in (
            ("68m:2x1/5", "draws 0.0 1.0"),
            ("68m:1x2/5", "draws 1.0 1.0"),
            ("68m:2s1/5", "draws 1.0 0.9"),
        ):
            done = self.run_cases(case)
            said = {line for line in done.stdout.splitlines() if "draws" in line}
            self.assertEqual(said, {drawn}, done.stderr)

    def test_answers_of_other_lengths_are_no_figures(self) -> None:
        done = self.run_cases("68m:1x1/7")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("68m:1x1/7: outputs of", done.stderr)

    def test_cases_that_cannot_run_are_refused(self) -> None:
        for case in ("9b:1x1/5", "8b:1x1", "8b:257x1/5", "8b:0x1/5", "8b:1x1/16384"):
            done = self.run_cases(case)
            self.assertEqual(done.returncode, 2, case)
            self.assertIn(case, done.stderr)


if __name__ == "__main__":
    unittest.main()

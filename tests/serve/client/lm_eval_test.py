"""lm-eval as its users start it, against `espalier serve`: the tokenizer is the
server's, by /tokenizer_info and /tokenize.

    lm_eval_test.py PROGRAM CACHE [unittest's arguments]
                                                         (live/environment.py)
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from live import environment
from live.replica import Replica

REQUIREMENTS = Path(__file__).with_name("lm_eval.txt")

if __name__ == "__main__":
    environment.restart_with_packages(REQUIREMENTS)

# Of data that is here: a harness needs no hub for it.
TASK = """task: sentences
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: {kind}
doc_to_text: "{{{{text}}}}"
doc_to_target: "{target}"
{choices}
metric_list:
  - metric: {metric}
metadata:
  version: 1
"""
ROWS = [{"text": "Where is the station?", "choices": ["yes", "no"], "label": 0},
        {"text": "It rains.", "choices": ["a", "b c"], "label": 1}]


class LmEvalTest(unittest.TestCase):
    def run_task(self, kind: str, metric: str, target: str = "",
                 choices: str = "", model_args: str = "") -> dict:
        with tempfile.TemporaryDirectory() as name, Replica() as server:
            folder = Path(name)
            data = folder / "rows.jsonl"
            data.write_text("\n".join(map(json.dumps, ROWS)))
            (folder / "sentences.yaml").write_text(TASK.format(
                data=data, kind=kind, metric=metric, target=target,
                choices=choices))
            run = subprocess.run(
                [sys.executable, "-m", "lm_eval", "run", "--model",
                 "local-completions", "--model_args",
                 f"model=en-fr,base_url={server.url}/v1/completions"
                 f"{model_args}",
                 "--include_path", folder, "--tasks", "sentences",
                 "--output_path", folder / "out"],
                capture_output=True, text=True, check=False,
                env={"HF_HUB_OFFLINE": "1", "HOME": name,
                     "PATH": "/usr/bin:/bin"})
            self.assertEqual(run.returncode, 0, run.stderr[-3000:])
            found, = (folder / "out").rglob("results*.json")
            return json.loads(found.read_text())["results"]["sentences"]

    def test_multiple_choice(self) -> None:
        results = self.run_task("multiple_choice", "acc", "{{label}}",
                                'doc_to_choice: "{{choices}}"')
        self.assertIn(results["acc,none"], [0.0, 0.5, 1.0])

    def test_rolling_log_likelihoods(self) -> None:
        results = self.run_task("loglikelihood_rolling", "word_perplexity",
                                "{{text}}")
        self.assertGreater(results["word_perplexity,none"], 1)


if __name__ == "__main__":
    environment.main()

"""Reads what `espalier batch --stats` writes with Prometheus' own parser.

    prometheus_client_test.py PROGRAM MODEL

Exit code 77: there is no prometheus_client here (tools/requirements.txt).
"""

import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from prometheus_client.parser import text_string_to_metric_families
except ModuleNotFoundError:
    print("SKIPPED: no prometheus_client; pip install prometheus_client")
    sys.exit(77)


def main(program: str, model: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "stats.prom"
        subprocess.run(
            [program, "batch", "-m", model, "--stats", file],
            input=b'{"prompt": "It rains.", "params": {"num_beams": 4}}\n' * 3,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        text = file.read_text(encoding="utf-8")
    families = {f.name: f for f in text_string_to_metric_families(text)}
    samples = {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in families.values()
        for s in family.samples
    }
    # One a line: none is lost, and none takes another's place.
    assert len(samples) == sum(not line.startswith("#") for line in text.splitlines())
    # The parser leaves _total out of the names of counters.
    kinds = {name: family.type for name, family in families.items()}
    assert kinds["vllm:num_preemptions"] == "counter", kinds
    assert kinds["vllm:kv_cache_usage_perc"] == "gauge", kinds
    assert kinds["vllm:e2e_request_latency_seconds"] == "histogram", kinds
    assert "unknown" not in kinds.values(), kinds
    label = ("model_name", model)
    assert samples["espalier:requests_total", (label,)] == 3
    assert samples["vllm:e2e_request_latency_seconds_count", (label,)] == 3
    print(f"{len(families)} families, {len(samples)} samples")


if __name__ == "__main__":
    main(*sys.argv[1:])

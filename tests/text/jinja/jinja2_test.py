"""Compares what text/jinja renders with what jinja2 does, byte by byte.

    jinja2_test.py PROGRAM CACHE [NUM_CONVERSATIONS]

PROGRAM is render_templates. Templates are those of templates/ and about seventy
of models, which the source package of llama_cpp_python carries; that and jinja2
come from the package index, and are kept in CACHE. Both renderings fail, or both
give the same bytes, models' templates within a twentieth of their budget.

Exit code 77: there is no package index here, nor anything in CACHE.
"""

import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

JINJA2 = "jinja2==3.1.6"
LLAMA = "llama_cpp_python==0.3.36"
HERE = Path(__file__).parent
NOW = 1_784_000_000
HEADROOM = 20


def skip(why: str) -> None:
    print(f"SKIPPED: {why}")
    sys.exit(77)


def pip(python: Path, *args: str) -> bool:
    command = [python, "-m", "pip", "--disable-pip-version-check", "-q", *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr[-2000:])
    return done.returncode == 0


def restart_with_jinja2(cache: Path) -> None:
    """Goes on in an environment of CACHE that has jinja2."""
    python = cache / "venv/bin/python"
    if os.environ.get("ESPALIER_JINJA2_TEST"):
        skip("jinja2 is installed, and cannot be imported")
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", cache / "venv"], check=True)
    if not pip(python, "install", JINJA2):
        skip(f"cannot install {JINJA2}")
    os.environ["ESPALIER_JINJA2_TEST"] = "1"
    os.execv(python, [str(python), "-B", *sys.argv])


def model_templates(cache: Path) -> dict[str, str]:
    """Templates of models by their files' names; none if they cannot be had."""
    packages = list(cache.glob("llama_cpp_python-*.tar.gz"))
    if not packages:
        python = Path(sys.executable)
        pip(python, "install", "scikit-build-core")
        pip(python, "download", "--no-deps", "--no-build-isolation",
            "--no-binary", ":all:", "-d", str(cache), LLAMA)
        packages = list(cache.glob("llama_cpp_python-*.tar.gz"))
    if not packages:
        return {}
    templates = {}
    with tarfile.open(packages[0]) as package:
        for member in package:
            if member.name.endswith(".jinja") and "/models/templates/" in member.name:
                text = package.extractfile(member).read().decode()
                templates[Path(member.name).name] = text
    return templates


def render_all(program: list[str], source: str, all_inputs: list[dict]) -> list[dict]:
    lines = [json.dumps({"template": source})]
    lines += [json.dumps({"inputs": inputs, "now": NOW}) for inputs in all_inputs]
    done = subprocess.run(program, input="\n".join(lines) + "\n", encoding="utf-8",
                          stdout=subprocess.PIPE, check=True,
                          env={**os.environ, "TZ": "UTC"})
    return [json.loads(line) for line in done.stdout.split("\n")[1:-1]]


def expected(environment, source: str, all_inputs: list[dict]) -> list[dict]:
    try:
        template = environment.from_string(source)
    except Exception as error:  # pylint: disable=broad-except
        return [{"error": repr(error)} for _ in all_inputs]
    results = []
    for inputs in all_inputs:
        try:
            results.append({"text": template.render(**inputs)})
        except Exception as error:  # pylint: disable=broad-except
            results.append({"error": repr(error)})
    return results


class Comparison:
    def __init__(self, program: str, environment):
        self.program = program
        self.environment = environment
        self.num_texts = self.num_errors = self.num_faults = 0

    def run(self, name: str, source: str, all_inputs: list[dict],
            headroom: int = 1) -> None:
        ours = render_all([self.program, str(headroom)], source, all_inputs)
        theirs = expected(self.environment, source, all_inputs)
        assert len(ours) == len(theirs), name
        faults = [i for i, (a, b) in enumerate(zip(ours, theirs))
                  if a.get("text") != b.get("text")]
        self.num_texts += sum("text" in result for result in theirs)
        self.num_errors += sum("error" in result for result in theirs)
        self.num_faults += len(faults)
        if faults:
            i = faults[0]
            print(f"{name}: {len(faults)} of {len(ours)} differ; conversation {i}:\n"
                  f"  ours   {ours[i]}\n  jinja2 {theirs[i]}")


def main(program: str, cache: str, num_conversations: str = "200") -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    Path(cache).mkdir(parents=True, exist_ok=True)
    try:
        from jinja2_oracle import make_environment
    except ModuleNotFoundError:
        restart_with_jinja2(Path(cache))
    from conversations import draw_inputs
    comparison = Comparison(program, make_environment(NOW))
    inputs = [draw_inputs(seed) for seed in range(int(num_conversations))]
    own = sorted((HERE / "templates").glob("*.jinja"))
    for path in own:
        source = path.read_text(encoding="utf-8")
        for number, part in enumerate(source.split("=====\n")):
            comparison.run(f"{path.name}[{number}]", part, inputs[:20])
    models = model_templates(Path(cache))
    for name, source in sorted(models.items()):
        comparison.run(name, source, inputs, HEADROOM)
    print(f"{len(own)} files and {len(models)} models' templates: "
          f"{comparison.num_texts} texts, {comparison.num_errors} errors, "
          f"{comparison.num_faults} differ")
    if comparison.num_faults:
        sys.exit(1)
    if not models:
        skip(f"cannot download {LLAMA}; only templates/ was compared")


if __name__ == "__main__":
    main(*sys.argv[1:])

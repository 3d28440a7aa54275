"""Which sources may read the headers that take a compiler seconds.

Asio's coroutines and CLI11 cost a source 2 to 10 s of one core, so they are
behind few sources: a header of ours that includes one must not spread it.
"""

import fnmatch
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A header's first folder, and the sources that may reach it by any way.
MAY_READ = {
    "boost/asio/": [
        "batcher/*",
        "benchmarks/*",
        "examples/cli/input/async_line_reader.cc",
        "examples/cli/commands/batch_command.cc",
        "examples/cli/commands/batch_line.cc",
        "examples/cli/commands/generate_command.cc",
        "examples/cli/runtime/interrupt.cc",
        "examples/cli/output/progress_ticks.cc",
        "examples/cli/runtime/runtime.cc",
        "examples/cli/commands/score_command.cc",
        "examples/cli/commands/serve_command.cc",
        "examples/cli/commands/transcribe_command.cc",
        "examples/cli/runtime/stream_output.cc",
        "examples/cli/runtime/text_answers.cc",
        "examples/cli/runtime/text_run.cc",
        "examples/cli/input/text_source.cc",
        "espalier/async_stream.cc",
        "espalier/generator.cc",
        "espalier/generator_call.cc",
        "espalier/generator_core.cc",
        "espalier/open_request.cc",
        "espalier/open_stream.cc",
        "espalier/run_prepared.cc",
        "executor/host/executor_thread.cc",
        "executor/host/model_executor.cc",
        "http/*",
        "jobs/*",
        "serve/*",
        "tests/batcher/*",
        "tests/consumer/*",
        "tests/espalier/*",
        "tests/fuzz/*",
        "tests/http/*",
        "tests/jobs/*",
        "tests/serve/*",
        "tests/cli/signal_test.cc",
        "tests/cli/worker_thread_test.cc",
    ],
    "CLI/": [
        "benchmarks/speculate/verify_speculation.cc",
        "examples/cli/command_line.cc",
        "examples/cli/options/command_options.cc",
        "examples/cli/options/common_options.cc",
        "examples/cli/commands/serve_options.cc",
        "examples/cli/commands/transcribe_options.cc",
        "examples/cli/options/usage_error.cc",
    ],
}
# These read a whole library; its parts have headers of their own.
NOBODY_READS = ["boost/asio.hpp", "boost/json.hpp", "CLI/CLI.hpp"]

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def includes_by_file():
    names = subprocess.run(
        ["git", "ls-files", "-z", "*.h", "*.cuh", "*.cc", "*.cu"],
        cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name: INCLUDE.findall((ROOT / name).read_text())
            for name in names.split("\0") if (ROOT / name).is_file()}


def ways(source, includes):
    """Every header that `source` reaches, and the files on the way there."""
    found = {source: [source]}
    waiting = [source]
    while waiting:
        name = waiting.pop()
        for header in includes.get(name, []):
            if header not in found:
                found[header] = found[name] + [header]
                waiting.append(header)
    return found


class HeavyHeadersTest(unittest.TestCase):
    def setUp(self):
        if not (ROOT / ".git").exists():
            self.skipTest("not a checkout")
        self.includes = includes_by_file()
        self.ways = {name: ways(name, self.includes)
                     for name in self.includes
                     if name.endswith((".cc", ".cu"))}

    def test_few_sources_read_them(self):
        for folder, allowed in MAY_READ.items():
            for source, found in sorted(self.ways.items()):
                if any(fnmatch.fnmatch(source, a) for a in allowed):
                    continue
                ways_there = [way for header, way in found.items()
                              if header.startswith(folder)]
                self.assertFalse(
                    ways_there, f"{source} reads {folder}: "
                    + " -> ".join(min(ways_there, key=len, default=[])))

    def test_who_may_read_them_is_there(self):
        for folder, allowed in MAY_READ.items():
            for pattern in allowed:
                self.assertTrue(
                    any(fnmatch.fnmatch(source, pattern)
                        and any(h.startswith(folder) for h in found)
                        for source, found in self.ways.items()),
                    f"{pattern} does not read {folder}")

    def test_the_scheduler_reads_none(self):
        # Of what batcher/* may read.
        for source, found in self.ways.items():
            if not source.startswith("batcher/scheduler/"):
                continue
            self.assertFalse(
                [header for header in found
                 if header.startswith("boost/asio/")],
                source)

    def test_the_front_door_reads_no_engine(self):
        # But what an engine counts, which is a value.
        values = {"batcher/engine_stats.h",
                  "batcher/scheduler/scheduler_stats.h"}
        found = ways("espalier/generator.h", self.includes)
        self.assertIn("espalier/generator_options.h", found)
        for header, way in found.items():
            if header in values:
                continue
            self.assertFalse(
                header.startswith(("boost/", "batcher/", "beam/", "kernels/")),
                " -> ".join(way))

    def test_nobody_reads_a_whole_library(self):
        for name, headers in self.includes.items():
            for header in headers:
                self.assertNotIn(header, NOBODY_READS, name)


if __name__ == "__main__":
    unittest.main()

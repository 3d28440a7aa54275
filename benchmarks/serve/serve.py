#!/usr/bin/env python3
"""What serving costs, against the goals of docs/performance.md.

    benchmarks/serve/serve.py [SCENARIO...] [--bin build/release/bin] [--quick]

Prints one table: what a scenario reached beside its goal, and the machine.
Without names all scenarios run, in less than three minutes:

    requests    requests a second of one token each, one I/O thread
    events      events a second of 1,000 live streams, one I/O thread
    idle        memory of 10,000 connections that send nothing
    overload    twice the capacity: what is answered, how the rest is refused
    droppers    10,000 clients that go at random bytes: what stays held
    slow        500 slow headers, bodies, readers: the p99 of good clients
    scrape      /metrics 20 times a second, while steps take half a second
    throughput  tokens a second of espalier serve against espalier batch
    first       time to the first token through the server against the engine's

All but the last two serve a model that computes nothing (null_model_server).
Load and server share the machine, and others may: where that matters there is
CPU time, too, which they disturb less. "io" is the I/O thread, "rest" all other
threads of the server. Build null_model_server, http_load, espalier_cli first.
"""

import argparse
import http.client
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "models" / "en-fr"
ONE_TOKEN = {"prompt": [3, 4, 5], "max_tokens": 1}


class Server:
    """A server process, whose I/O thread is called http."""

    def __init__(self, command, port_of):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.port = port_of(self.process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait()

    def cpu(self):
        """CPU seconds: of the I/O thread, and of the rest."""
        tasks = f"/proc/{self.process.pid}/task"
        io = rest = 0.0
        for thread in os.listdir(tasks):
            try:
                name = pathlib.Path(tasks, thread, "comm").read_text().strip()
                run = pathlib.Path(tasks, thread, "schedstat").read_text()
            except FileNotFoundError:
                continue  # the thread has ended
            seconds = int(run.split()[0]) / 1e9
            if name == "http":
                io += seconds
            else:
                rest += seconds
        if io == 0:
            sys.exit("the server has no thread called http")
        return io, rest

    def rss_mb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return int(re.search(r"VmRSS:\s*(\d+)", file.read())[1]) / 1024

    def metrics(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        values = {}
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            name, value = line.rsplit(" ", 1)
            name = re.sub(r'model_name="[^"]*",?', "", name).replace("{}", "")
            values[name] = float(value)
        return values


def null_server(args, *options):
    command = [f"{args.bin}/null_model_server", *map(str, options)]
    return Server(command, lambda process: int(process.stdout.readline()))


def compute_options(args):
    return (["--threads", "1"] if args.device == "cpu"
            else ["--device", args.device])


def model_server(args, *options):
    command = [f"{args.bin}/espalier", "serve", "-m", str(MODEL), "--port", "0",
               "--io-threads", "1", *compute_options(args), *map(str, options)]

    def port_of(process):
        for line in process.stderr:
            if found := re.search(r"listening on http://.*:(\d+)", line):
                return int(found[1])
        raise SystemExit("espalier serve did not start")

    return Server(command, port_of)


def start_load(args, server, body=None, bodies=None, **options):
    """http_load, running. Options as its own, with _ for -."""
    command = [f"{args.bin}/http_load", "--port", str(server.port)]
    if body is not None or bodies is not None:
        options.setdefault("path", "/v1/completions")
        lines = [body] if bodies is None else bodies
        path = pathlib.Path(args.work) / f"bodies{len(os.listdir(args.work))}"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines),
                        encoding="utf-8")
        options["bodies"] = path
    for name, value in options.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish_load(process):
    output = process.communicate()[0]
    if process.returncode != 0:
        raise SystemExit("http_load failed")
    return json.loads(output)


def load(args, server, **options):
    return finish_load(start_load(args, server, **options))


class Table:
    def __init__(self):
        self.missed = 0

    def row(self, name, what, goal, reached, is_met):
        self.missed += not is_met
        print(f"| {name} | {what} | {goal} | {reached} "
              f"| {'yes' if is_met else 'NO'} |", flush=True)


def requests(args, table):
    with null_server(args) as server:
        load(args, server, body=ONE_TOKEN, connections=32, seconds=0.5)
        io, rest = server.cpu()
        report = load(args, server, body=ONE_TOKEN, connections=64,
                      seconds=args.seconds)
        io, rest = (b - a for a, b in zip((io, rest), server.cpu()))
    count = report["responses"]
    table.row("requests", "requests/s, 64 connections, 1 token", ">= 20,000",
              f"{report['responses_per_s']:,}; io {io / count * 1e6:.1f} us, "
              f"rest {rest / count * 1e6:.1f} us CPU each",
              report["responses_per_s"] >= 20000)
    table.row("requests", "requests for a CPU second of the I/O thread",
              ">= 20,000", f"{count / io:,.0f}", count / io >= 20000)


def events(args, table):
    # 1,000 streams and steps of 17 ms: at most 58,000 tokens a second.
    body = {"prompt": [3, 4, 5], "max_tokens": 2000, "stream": True,
            "return_token_ids": True, "ignore_eos": True}
    with null_server(args, "--max-running", 1000, "--step-us",
                     17000) as server:
        running = start_load(args, server, body=body, mode="streams",
                             connections=1000, seconds=args.seconds + 3)
        for _ in range(20 * (args.seconds + 2)):
            time.sleep(0.05)
            if server.metrics()["vllm:num_requests_running"] == 1000:
                break
        live = server.metrics()["vllm:num_requests_running"]
        report = finish_load(running)
        io, rest = server.cpu()
    # The first second goes to 1,000 connections and prompts.
    rate = report["events"] / (report["seconds"] - 1)
    per_io = report["events"] / io
    table.row("events", "live streams", "1,000", f"{live:.0f}", live == 1000)
    table.row("events", "events/s", ">= 50,000",
              f"{rate:,.0f}; io {io / report['events'] * 1e6:.1f} us, rest "
              f"{rest / report['events'] * 1e6:.1f} us CPU each",
              rate >= 50000)
    table.row("events", "events for a CPU second of the I/O thread",
              ">= 50,000", f"{per_io:,.0f}", per_io >= 50000)


def idle(args, table):
    with null_server(args) as server:
        before = server.rss_mb()
        running = start_load(args, server, mode="idle", connections=10000,
                             seconds=4)
        time.sleep(3)
        after = server.rss_mb()
        count = server.metrics()["espalier:http_connections"] - 1
        io = server.cpu()[0]
        time.sleep(0.5)
        io = server.cpu()[0] - io
        finish_load(running)
    table.row("idle", f"{count:,.0f} idle connections, RSS",
              "< 200 MB", f"{after:.0f} MB ({before:.0f} MB without); "
              f"{io / 0.5:.1%} of a core",
              after < 200 and count == 10000)


def overload(args, table):
    body = {"prompt": [3, 4, 5], "max_tokens": 16, "ignore_eos": True}
    options = ["--step-us", 2000, "--max-running", 32, "--max-waiting", 32]
    with null_server(args, *options) as server:
        def peak_rate():
            return load(args, server, body=body, connections=64,
                        seconds=args.seconds)["responses_per_s"]

        before = peak_rate()
        report = load(args, server, body=body, mode="open", rate=2 * before,
                      connections=512, seconds=args.seconds)
        peak = round((before + peak_rate()) / 2)
    good = report["statuses"].get("200", 0) / report["seconds"]
    refused = report["statuses"].get("429", 0)
    p99 = (report["latency_by_status_ms"].get("429") or {"p99": 0})["p99"]
    others = set(report["statuses"]) - {"200", "429"} or report["errors"]
    table.row("overload", f"goodput at twice the peak of {peak:,}/s",
              ">= 95%", f"{good / peak:.1%}", good >= 0.95 * peak)
    table.row("overload", f"{refused:,} refused with 429, p99", "< 50 ms",
              f"{p99:.1f} ms", refused > 0 and p99 < 50 and not others)


def held(server):
    """What is held once all clients have gone: all should be 0."""
    names = ("espalier:http_connections", "espalier:http_exchanges_running",
             "vllm:num_requests_running", "vllm:num_requests_waiting",
             'espalier:pages{state="held"}')
    for _ in range(100):
        metrics = server.metrics()
        left = [metrics[name] for name in names]
        left[0] -= 1  # the connection and the call that ask
        left[1] -= 1
        if not any(left):
            break
        time.sleep(0.05)
    return left


def droppers(args, table):
    whole = {"prompt": [3, 4, 5], "max_tokens": 40, "ignore_eos": True}
    drops = 0
    with null_server(args, "--max-running", 64) as server:
        for seed in range(8):
            for body in (whole, whole | {"stream": True, "n": 4,
                                         "return_token_ids": True}):
                report = load(args, server, body=body, mode="droppers",
                              connections=200, seconds=1, seed=seed + 1)
                drops += report["drops"]
            if drops >= 10000:
                break
        left = held(server)
        gone = server.metrics()["espalier:http_clients_gone_total"]
    table.row("droppers", f"{drops:,} drops, {gone:,.0f} within an answer: "
              "connections, calls, requests, waiting, pages held", "all 0",
              ", ".join(f"{value:.0f}" for value in left),
              not any(left) and drops >= 10000)


def slow(args, table):
    large = dict(ONE_TOKEN, user="x" * 900)
    kinds = (("slow-headers", {"body": ONE_TOKEN}),
             ("slow-bodies", {"body": large}),
             ("slow-readers", {"path": "/"}))
    with null_server(args) as server:
        def good_p99():
            return load(args, server, body=ONE_TOKEN, connections=4,
                        seconds=args.seconds / 2)["latency_ms"]["p99"]

        for mode, options in kinds:
            without, with_ = [], []
            for _ in range(3):
                without.append(good_p99())
                running = start_load(args, server, mode=mode, connections=500,
                                     interval=200, seconds=1 +
                                     args.seconds / 2, **options)
                time.sleep(0.7)
                with_.append(good_p99())
                finish_load(running)
            ratio = statistics.median(with_) / statistics.median(without)
            table.row("slow", f"p99 of good clients beside 500 {mode}", "< 2x",
                      f"{ratio:.2f}x ({statistics.median(without):.2f} to "
                      f"{statistics.median(with_):.2f} ms)", ratio < 2)


def scrape(args, table):
    body = {"prompt": [3, 4, 5], "max_tokens": 1000, "ignore_eos": True}
    with null_server(args, "--step-us", 500000) as server:
        running = start_load(args, server, body=body, connections=8, seconds=60)
        time.sleep(0.5)
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        count, longest = 60, 0

        def cpu_of(scrapes):
            nonlocal longest
            before = sum(server.cpu())
            for _ in range(count):
                begin = time.perf_counter()
                if scrapes:
                    connection.request("GET", "/metrics")
                    connection.getresponse().read()
                longest = max(longest, time.perf_counter() - begin)
                time.sleep(0.05)
            return sum(server.cpu()) - before

        connection.connect()
        cost = -(cpu_of(False) - cpu_of(True)) / count
        before = sum(server.cpu())
        in_row = load(args, server, path="/metrics", seconds=0.5)["responses"]
        in_row = (sum(server.cpu()) - before) / in_row
        running.kill()
        running.communicate()
    table.row("scrape", "CPU for /metrics, all threads, 20 a second and in a "
              "row", "< 100 us", f"{cost * 1e6:.0f} and {in_row * 1e6:.0f} us",
              cost < 100e-6)
    table.row("scrape", "the longest, while a step takes 500 ms", "< 100 ms",
              f"{longest * 1e3:.1f} ms", longest < 0.1)


def dev_sentences():
    with open(ROOT / "benchmarks/data/dev_sentences.jsonl",
              encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


def run_batch(args, lines):
    """Wall and CPU seconds."""
    path = pathlib.Path(args.work) / "requests.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines),
                    encoding="utf-8")
    output = pathlib.Path(args.work) / "results.jsonl"
    before, begin = os.times(), time.perf_counter()
    subprocess.run([f"{args.bin}/espalier", "batch", "-m", str(MODEL),
                    *compute_options(args), "--input", str(path), "-o",
                    str(output)],
                   check=True, stderr=subprocess.DEVNULL)
    wall, after = time.perf_counter() - begin, os.times()
    cpu = (after.children_user - before.children_user +
           after.children_system - before.children_system)
    results = [json.loads(line) for line in
               output.read_text(encoding="utf-8").splitlines()]
    tokens = sum(result["usage"]["generated_tokens"] for result in results)
    return wall, cpu, tokens


def throughput(args, table):
    texts = dev_sentences() * (2 if args.device == "cpu" else 16)
    params = {"num_beams": 4, "max_new_tokens": 64}
    lines = [{"prompt": text, "params": params} for text in texts]
    bodies = [{"prompt": text, "num_beams": 4, "n": 4, "max_tokens": 64}
              for text in texts]
    walls, cpus = [], []
    with model_server(args) as server:
        for _ in range(3):
            loading = run_batch(args, lines[:1])
            batch = run_batch(args, lines)
            cpu = sum(server.cpu())
            report = load(args, server, bodies=bodies, requests=len(bodies),
                          connections=256, seconds=120)
            cpu = sum(server.cpu()) - cpu
            if report["statuses"] != {"200": len(bodies)}:
                raise SystemExit(f"throughput: {report}")
            walls.append((batch[0] - loading[0]) / report["seconds"])
            cpus.append((batch[1] - loading[1]) / cpu)
        rate = batch[2] / report["seconds"]
    wall, cpu = statistics.median(walls), statistics.median(cpus)
    table.row("throughput", f"tokens/s of batch, {len(texts):,} sentences, 4 "
              f"beams, {' '.join(compute_options(args))}", ">= 97%",
              f"{wall:.1%} ({rate:,.0f}/s); {cpu:.1%} for a CPU second",
              wall >= 0.97)


def first(args, table):
    texts = dev_sentences()[:100]
    with model_server(args) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)

        def seconds_to_first(text):
            body = json.dumps({"prompt": text, "max_tokens": 8, "stream": True,
                               "temperature": 0})
            begin = time.perf_counter()
            connection.request("POST", "/v1/completions", body,
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
            while not answer.readline().startswith(b"data: {"):
                pass
            end = time.perf_counter()
            answer.read()
            return end - begin

        for text in texts[:10]:
            seconds_to_first(text)
        name = "vllm:time_to_first_token_seconds"
        before = server.metrics()
        measured = [seconds_to_first(text) for text in texts]
        after = server.metrics()
    engine = ((after[name + "_sum"] - before[name + "_sum"]) /
              (after[name + "_count"] - before[name + "_count"]))
    more = statistics.mean(measured) - engine
    table.row("first", "mean time to the first token, less the engine's",
              "<= 1 ms", f"{more * 1e3:.2f} ms ({engine * 1e3:.2f} ms there)",
              more <= 1e-3)


SCENARIOS = {function.__name__: function for function in (
    requests, events, idle, overload, droppers, slow, scrape, throughput,
    first)}


def machine():
    model = "unknown CPU"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        if found := re.search(r"model name\s*: (.*)", file.read()):
            model = found[1]
    return (f"{len(os.sched_getaffinity(0))} CPUs of {model}, Linux "
            f"{platform.release()}, load {os.getloadavg()[0]:.1f}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO",
                        help=", ".join(SCENARIOS))
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--device", default="cpu",
                        help="of throughput and first: cpu (one thread) or cuda")
    parser.add_argument("--quick", action="store_true",
                        help="a second a measurement, not three")
    args = parser.parse_args()
    args.seconds = 1 if args.quick else 3
    unknown = set(args.scenarios) - set(SCENARIOS)
    if unknown:
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}")
    table = Table()
    print(f"{machine()}\n")
    print("| scenario | what | goal | reached | met |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as args.work:
        for name in args.scenarios or SCENARIOS:
            SCENARIOS[name](args, table)
    sys.exit(table.missed > 0)


if __name__ == "__main__":
    main()

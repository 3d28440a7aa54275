#!/usr/bin/env python3
"""What it costs to score choices, in CPU seconds of the server.

    benchmarks/serve/score.py [--espalier PROGRAM] [--choices 4 16 64]

A model of random weights in the shape of a small Llama (8 layers of 256, a
vocabulary of 8,192), a prompt of 900 tokens, choices of 3 tokens. Three ways:

    echo      /v1/completions, a prompt for each choice, "echo" with "logprobs"
              and "max_tokens" 0: every token of every prompt gets a row of
              logits
    start     the same with "logprobs_start": the prompt comes from the prefix
              cache
    scoring   /generative_scoring, one call

Each is the time of the server's process for one question, the median of a few,
every question with a prompt of its own. All sums must agree within 1e-5, and
the script says so.
"""

import argparse
import json
import pathlib
import random
import statistics
import struct
import subprocess
import tempfile
import time
import os
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCAB, WIDTH, LAYERS, HEADS, INNER = 8192, 256, 8, 4, 704


def write_model(path):
    """config.json and model.safetensors, bf16 numbers near zero."""
    rng = random.Random(1)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
              "vocab_size": VOCAB, "hidden_size": WIDTH,
              "intermediate_size": INNER, "num_hidden_layers": LAYERS,
              "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
              "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": False, "bos_token_id": 1,
              "eos_token_id": 2, "torch_dtype": "float32"}
    (path / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens.weight": (VOCAB, WIDTH),
              "model.norm.weight": (WIDTH,), "lm_head.weight": (VOCAB, WIDTH)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for name in "qkvo":
            shapes[f"{at}self_attn.{name}_proj.weight"] = (WIDTH, WIDTH)
        shapes[at + "mlp.gate_proj.weight"] = (INNER, WIDTH)
        shapes[at + "mlp.up_proj.weight"] = (INNER, WIDTH)
        shapes[at + "mlp.down_proj.weight"] = (WIDTH, INNER)
        shapes[at + "input_layernorm.weight"] = (WIDTH,)
        shapes[at + "post_attention_layernorm.weight"] = (WIDTH,)
    header, offset, parts = {}, 0, []
    for name, shape in shapes.items():
        size = 1
        for length in shape:
            size *= length
        if name.endswith("norm.weight"):
            data = struct.pack("<f", 1.0) * size
        else:
            # Some of 4,096 numbers of +-0.1, whole rows at a time.
            pool = struct.pack("<4096f",
                               *(rng.uniform(-0.1, 0.1) for _ in range(4096)))
            rows = [pool[4 * i:] + pool[:4 * i]
                    for i in rng.choices(range(4096), k=-(-size // 4096))]
            data = b"".join(rows)[:4 * size]
        header[name] = {"dtype": "F32", "shape": list(shape),
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    with open(path / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(parts)


class Server:
    def __init__(self, program, model, port):
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [program, "serve", "-m", model, "--port", str(port), "--threads",
             "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url + "/ready").read()
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit("the server does not start")

    def post(self, path, body):
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(),
            {"Content-Type": "application/json"})
        try:
            return json.load(urllib.request.urlopen(request))
        except urllib.error.HTTPError as error:
            raise SystemExit(error.read().decode()) from error

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def by_echo(server, prompt, choices, start):
    body = {"prompt": [prompt + choice for choice in choices], "echo": True,
            "logprobs": 1, "max_tokens": 0}
    if start:
        # One row more than is needed: the prompt's last token is fed again.
        server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1})
        body["logprobs_start"] = len(prompt)
    answer = server.post("/v1/completions", body)
    return [sum(choice["logprobs"]["token_logprobs"][len(prompt):])
            for choice in sorted(answer["choices"], key=lambda c: c["index"])]


def by_scoring(server, prompt, choices):
    answer = server.post("/generative_scoring",
                         {"query": prompt, "items": choices})
    return [item["logprob"] for item in answer["data"]]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--espalier",
                        default=str(ROOT / "build/release/bin/espalier"))
    parser.add_argument("--choices", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--port", type=int, default=random.randint(20000,
                                                                   60000))
    args = parser.parse_args()
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as directory:
        write_model(pathlib.Path(directory))
        server = Server(args.espalier, directory, args.port)
        try:
            print("choices  echo      start     scoring   echo/scoring")
            for count in args.choices:
                measure(server, rng, count, args.rounds)
        finally:
            server.process.terminate()
            server.process.wait()


def measure(server, rng, count, rounds):
    ways = {"echo": lambda p, c: by_echo(server, p, c, False),
            "start": lambda p, c: by_echo(server, p, c, True),
            "scoring": lambda p, c: by_scoring(server, p, c)}
    times = {way: [] for way in ways}
    worst = 0.0
    for _ in range(rounds):
        choices = [[rng.randrange(3, VOCAB) for _ in range(3)]
                   for _ in range(count)]
        prompts = [[rng.randrange(3, VOCAB) for _ in range(900)]
                   for _ in ways]
        for prompt, (way, run) in zip(prompts, ways.items()):
            before = server.cpu_seconds()
            run(prompt, choices)
            times[way].append(server.cpu_seconds() - before)
        sums = [run(prompts[0], choices) for run in ways.values()]
        worst = max(worst, *(max(each) - min(each) for each in zip(*sums)))
    medians = {way: statistics.median(each) for way, each in times.items()}
    ratio = medians["echo"] / max(medians["scoring"], 1e-9)
    print(f"{count:7}  " +
          "  ".join(f"{medians[way]:6.3f} s" for way in ways) +
          f"  {ratio:8.1f}   sums differ by at most {worst:.1e}")
    if worst > 1e-5:
        raise SystemExit("sums differ")


if __name__ == "__main__":
    main()

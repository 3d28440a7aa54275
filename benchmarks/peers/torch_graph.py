"""The decode step of a Llama written by hand in torch and replayed as a CUDA graph.

    python benchmarks/peers/torch_graph.py --output torch.jsonl 8b:8x4/512

The strongest peer that plain torch offers: no framework, no launch from the host,
scaled_dot_product_attention over a static cache, log_softmax and topk. It reads
every beam's cache separately and, to its advantage, never moves one: its
beams do not follow their parents. Weights and caches are random, in bf16.

A case is MODEL:REQUESTSxBEAMS/PROMPT. Each line of the output is one case, with
the median milliseconds of a step's forward pass alone and of the whole step.
"""

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

ROOM = 64  # positions of the caches beyond the prompt
WARM_UP, REPLAYS = 5, 25


@dataclass(frozen=True)
class Shape:
    """A model's sizes; embeddings are tied, which changes no step's time."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int

    @property
    def query(self) -> int:
        return self.heads * self.head_dim

    @property
    def qkv(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim


SHAPES = {
    "68m": Shape(768, 2, 12, 12, 64, 3072, 32000),
    "0.6b": Shape(1024, 28, 16, 8, 128, 3072, 151936),
    "1b": Shape(2048, 16, 32, 8, 64, 8192, 128256),
    "8b": Shape(4096, 32, 32, 8, 128, 14336, 128256),
}


@dataclass(frozen=True)
class Case:
    model: str
    requests: int
    beams: int
    prompt: int

    @staticmethod
    def parse(text: str) -> "Case":
        match = re.fullmatch(r"([\w.]+):(\d+)x(\d+)/(\d+)", text)
        if match is None or match[1] not in SHAPES:
            raise argparse.ArgumentTypeError(f"no case: {text}")
        return Case(match[1], int(match[2]), int(match[3]), int(match[4]))


def random(*sizes: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*sizes, device="cuda", dtype=torch.bfloat16) * scale


class Layer:
    """One layer's weights and the caches of all rows."""

    def __init__(self, s: Shape, rows: int, room: int):
        self.shape = s
        self.qkv = random(s.qkv, s.hidden, scale=0.02)
        self.out = random(s.hidden, s.query, scale=0.02)
        self.gate_up = random(2 * s.ffn, s.hidden, scale=0.02)
        self.down = random(s.hidden, s.ffn, scale=0.02)
        self.norms = torch.ones(2, s.hidden, device="cuda", dtype=torch.bfloat16)
        self.keys = random(rows, s.kv_heads, room, s.head_dim)
        self.values = random(rows, s.kv_heads, room, s.head_dim)

    def attend(
        self, x: torch.Tensor, position: int, rope: Callable[..., torch.Tensor]
    ) -> torch.Tensor:
        s = self.shape
        heads = (x @ self.qkv.T).view(len(x), -1, s.head_dim)
        q, k, v = heads.split([s.heads, s.kv_heads, s.kv_heads], 1)
        self.keys[:, :, position] = rope(k)
        self.values[:, :, position] = v
        out = F.scaled_dot_product_attention(
            rope(q).unsqueeze(2),
            self.keys[:, :, : position + 1],
            self.values[:, :, : position + 1],
            enable_gqa=s.heads != s.kv_heads,
        )
        return out.reshape(len(x), -1) @ self.out.T

    def __call__(
        self, x: torch.Tensor, position: int, rope: Callable[..., torch.Tensor]
    ) -> torch.Tensor:
        size = (self.shape.hidden,)
        x = x + self.attend(F.rms_norm(x, size, self.norms[0]), position, rope)
        gate, up = (F.rms_norm(x, size, self.norms[1]) @ self.gate_up.T).chunk(2, -1)
        return x + (F.silu(gate) * up) @ self.down.T


class Step:
    """The step after the prompt, of all rows, over state that a graph can hold."""

    def __init__(self, case: Case):
        s = SHAPES[case.model]
        rows = case.requests * case.beams
        self.case, self.shape = case, s
        self.layers = [Layer(s, rows, case.prompt + ROOM) for _ in range(s.layers)]
        self.embeddings = random(s.vocab, s.hidden, scale=0.02)
        self.tokens = torch.randint(0, s.vocab, (rows,), device="cuda")
        self.sums = torch.zeros(case.requests, case.beams, device="cuda")
        self.cos, self.sin = (random(rows, 1, s.head_dim) for _ in range(2))

    def rope(self, x: torch.Tensor) -> torch.Tensor:
        low, high = x.chunk(2, -1)
        return x * self.cos + torch.cat((-high, low), -1) * self.sin

    def forward(self) -> torch.Tensor:
        x = self.embeddings[self.tokens]
        for layer in self.layers:
            x = layer(x, self.case.prompt, self.rope)
        x = F.rms_norm(x, (self.shape.hidden,), self.layers[0].norms[0])
        return x @ self.embeddings.T

    def select(self, logits: torch.Tensor) -> torch.Tensor:
        """Feeds the best beams to the next replay; returns their parents."""
        beams, vocab = self.case.beams, self.shape.vocab
        log_probs = torch.log_softmax(logits.float(), -1)
        sums = log_probs.view(self.case.requests, beams, vocab) + self.sums[..., None]
        best, places = sums.view(self.case.requests, -1).topk(2 * beams, -1)
        self.tokens.copy_((places % vocab)[:, :beams].reshape(-1))
        self.sums.copy_(best[:, :beams])
        return places // vocab


def milliseconds(body: Callable[[], torch.Tensor]) -> float:
    """The median time of a replay of `body` as a graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    times = []
    for _ in range(WARM_UP + REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[WARM_UP:])


@torch.no_grad()
def measure(case: Case) -> dict[str, object]:
    step = Step(case)
    forward = milliseconds(step.forward)
    whole = milliseconds(lambda: step.select(step.forward()))
    return {**asdict(case), "forward_ms": forward, "step_ms": whole}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="+", type=Case.parse, metavar="CASE")
    parser.add_argument("--output", type=Path, required=True, help="JSON lines")
    args = parser.parse_args()
    torch.manual_seed(0)
    with args.output.open("w", encoding="utf-8") as output:
        for case in args.cases:
            try:
                line = measure(case)
            except torch.OutOfMemoryError as error:
                print(f"{case}: {error}", file=sys.stderr)
                continue
            finally:
                torch.cuda.empty_cache()
            print(json.dumps(line), file=output, flush=True)


if __name__ == "__main__":
    main()

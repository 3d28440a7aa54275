"""What torch takes for selection, sampling, attention and matrix products of a decode step.

    python benchmarks/peers/torch_kernels.py select sample attention matmul

Each figure is one CUDA graph of several calls, the median of its replays,
divided by the calls. Each call has buffers of its own, more than the L2 cache
holds in all, so that every call reads cold memory. Prints markdown.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

COLD_BYTES = 300e6  # of all buffers together
WARM_UP, REPLAYS = 3, 30

ROWS = ((4, 32000), (64, 32000)) + tuple((n, 128256) for n in (4, 16, 64, 256, 1024))
CANDIDATES = 16

# requests, beams of each, shared prefix, tokens of each beam's own
BEAMS = ((1, 8, 8192, 32), (1, 4, 128, 32), (1, 128, 1024, 8), (16, 8, 512, 32))
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128

# inputs -> outputs of the products of the shapes in torch_graph.py
PRODUCTS = {
    "68m": ((768, 2304), (768, 768), (768, 6144), (3072, 768), (768, 32000)),
    "1b": ((2048, 3072), (2048, 2048), (2048, 16384), (8192, 2048), (2048, 128256)),
    "8b": ((4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096), (4096, 128256)),
}
PRODUCT_ROWS = (1, 8, 32, 128)


def num_copies(num_bytes: float) -> int:
    return max(2, min(64, int(COLD_BYTES / num_bytes)))


def microseconds(calls: Sequence[Callable[[], object]]) -> float:
    """The median time of one of `calls`, which run one after the other."""

    def run() -> None:
        for call in calls:
            call()

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    times = []
    for _ in range(WARM_UP + REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times[WARM_UP:]) / len(calls)


def random(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*sizes, device="cuda", dtype=dtype)


def log_softmax_and_topk(logits: torch.Tensor) -> object:
    return torch.log_softmax(logits, -1).topk(CANDIDATES, -1)


def select() -> None:
    print(f"| torch, f32, rows × vocab | log_softmax + topk({CANDIDATES}), µs |")
    print("|---|---|")
    for rows, vocab in ROWS:
        copies = num_copies(4.0 * rows * vocab)
        logits = [3 * random(rows, vocab, dtype=torch.float32) for _ in range(copies)]
        time = microseconds([lambda x=x: log_softmax_and_topk(x) for x in logits])
        print(f"| {rows} × {vocab} | {time:.1f} |", flush=True)


def filter_and_draw(logits: torch.Tensor) -> object:
    """top_k 50, then top_p 0.9, at temperature 0.8."""
    best, tokens = logits.topk(50, -1)
    p = torch.softmax(best / 0.8, -1)
    p = p.masked_fill(p.cumsum(-1) - p >= 0.9, 0)
    return tokens.gather(-1, p.multinomial(1))


def sample() -> None:
    print("| torch, f32, rows × vocab | softmax + multinomial, µs | top_k + top_p, µs |")
    print("|---|---|---|")
    for rows in (1, 8, 64, 512):
        vocab = 128256
        copies = num_copies(4.0 * rows * vocab)
        logits = [3 * random(rows, vocab, dtype=torch.float32) for _ in range(copies)]
        plain = microseconds(
            [lambda x=x: torch.softmax(x / 0.8, -1).multinomial(1) for x in logits]
        )
        filtered = microseconds([lambda x=x: filter_and_draw(x) for x in logits])
        print(f"| {rows} × {vocab} | {plain:.1f} | {filtered:.1f} |", flush=True)


def attention() -> None:
    """Every beam's keys and values lie apart: torch cannot share a prefix."""
    print("| torch SDPA, bf16, requests × beams, prefix + own | µs a layer |")
    print("|---|---|")
    for requests, beams, prefix, own in BEAMS:
        rows, length = requests * beams, prefix + own
        sizes = (rows, KV_HEADS, length, HEAD_DIM)
        copies = num_copies(4.0 * rows * KV_HEADS * length * HEAD_DIM)
        q = random(rows, HEADS, 1, HEAD_DIM)
        pairs = [(random(*sizes), random(*sizes)) for _ in range(copies)]
        time = microseconds(
            [
                lambda k=k, v=v: F.scaled_dot_product_attention(
                    q, k, v, enable_gqa=True
                )
                for k, v in pairs
            ]
        )
        print(f"| {requests} × {beams}, {prefix} + {own} | {time:.1f} |", flush=True)


def matmul() -> None:
    columns = "".join(f" {n} |" for n in PRODUCT_ROWS)
    print(f"| torch, bf16, inputs -> outputs; µs by rows: |{columns}")
    print("|---|" + "---|" * len(PRODUCT_ROWS))
    for model, products in PRODUCTS.items():
        for inputs, outputs in products:
            copies = num_copies(2.0 * inputs * outputs)
            weights = [random(outputs, inputs) for _ in range(copies)]
            cells = []
            for rows in PRODUCT_ROWS:
                x = random(rows, inputs)
                time = microseconds([lambda w=w: x @ w.T for w in weights])
                cells.append(f" {time:.2f} |")
            name = f"{model} {inputs} -> {outputs}"
            print(f"| {name} |{''.join(cells)}", flush=True)


PARTS: dict[str, Callable[[], None]] = {
    "select": select,
    "sample": sample,
    "attention": attention,
    "matmul": matmul,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    torch.manual_seed(0)
    with torch.no_grad():
        for part in parser.parse_args().parts:
            PARTS[part]()
            print()


if __name__ == "__main__":
    main()

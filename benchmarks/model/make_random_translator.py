"""Writes an encoder-decoder of random weights, in bf16, and requests for it, to
measure shapes that need no sense.

    make_random_translator.py SHAPE DIR [REQUESTS [SOURCE_TOKENS [NEW_TOKENS]]]
    espalier batch -m DIR --device cuda --figures --input DIR/requests.jsonl -o /dev/null

    SHAPE           layers   width   heads  feed-forward  vocabulary
    opus-mt          6 + 6     512       8         2,048      58,101
    whisper-base     6 + 6     512       8         2,048      51,865  1,500-token sources
    nllb-600m      12 + 12   1,024      16         4,096     256,206

opus-mt and whisper-base are of the family marian, nllb-600m is of m2m_100. Each
request generates all of its NEW_TOKENS, with 4 beams. The numbers of a tensor
are a run of 65,537 random ones, again and again.
"""

import argparse
import json
import random
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO


@dataclass
class Shape:
    family: str
    layers: int
    hidden: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int


SHAPES = {
    "opus-mt": Shape("marian", 6, 512, 8, 2048, 58101, 512),
    "whisper-base": Shape("marian", 6, 512, 8, 2048, 51865, 1536),
    "nllb-600m": Shape("m2m_100", 12, 1024, 16, 4096, 256206, 1024),
}
NUM_RANDOM = 65537


def config(shape: Shape) -> dict[str, object]:
    is_marian = shape.family == "marian"
    result = {
        "model_type": shape.family,
        "architectures": [
            "MarianMTModel" if is_marian else "M2M100ForConditionalGeneration"
        ],
        "is_encoder_decoder": True,
        "activation_function": "swish" if is_marian else "relu",
        "d_model": shape.hidden,
        "decoder_attention_heads": shape.heads,
        "decoder_ffn_dim": shape.feed_forward,
        "decoder_layers": shape.layers,
        "decoder_start_token_id": shape.vocabulary - 1 if is_marian else 2,
        "encoder_attention_heads": shape.heads,
        "encoder_ffn_dim": shape.feed_forward,
        "encoder_layers": shape.layers,
        "eos_token_id": 0 if is_marian else 2,
        "max_position_embeddings": shape.positions,
        "pad_token_id": shape.vocabulary - 1 if is_marian else 1,
        "scale_embedding": True,
        "tie_word_embeddings": True,
        "vocab_size": shape.vocabulary,
    }
    if is_marian:
        result["decoder_vocab_size"] = shape.vocabulary
        result["share_encoder_decoder_embeddings"] = True
    return result


def tensors(shape: Shape) -> dict[str, tuple[int, ...]]:
    hidden, wide = shape.hidden, shape.feed_forward
    result = {"model.shared.weight": (shape.vocabulary, hidden)}
    for stack in ("encoder", "decoder"):
        attentions = ["self_attn"] + ["encoder_attn"] * (stack == "decoder")
        for layer in range(shape.layers):
            name = f"model.{stack}.layers.{layer}."
            for attention in attentions:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    result[f"{name}{attention}.{part}.weight"] = (hidden, hidden)
                    result[f"{name}{attention}.{part}.bias"] = (hidden,)
            result[f"{name}fc1.weight"] = (wide, hidden)
            result[f"{name}fc1.bias"] = (wide,)
            result[f"{name}fc2.weight"] = (hidden, wide)
            result[f"{name}fc2.bias"] = (hidden,)
            for part in [*attentions, "final"]:
                result[f"{name}{part}_layer_norm.weight"] = (hidden,)
                result[f"{name}{part}_layer_norm.bias"] = (hidden,)
        if shape.family == "m2m_100":
            result[f"model.{stack}.layer_norm.weight"] = (hidden,)
            result[f"model.{stack}.layer_norm.bias"] = (hidden,)
    if shape.family == "marian":
        result["final_logits_bias"] = (1, shape.vocabulary)
    return result


def size(shape: tuple[int, ...]) -> int:
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def bf16(number: float) -> bytes:
    return struct.pack("<f", number)[2:]


def write_tensor(file: BinaryIO, name: str, numbers: bytes, count: int) -> None:
    if "norm.weight" in name:
        file.write(bf16(1) * count)
        return
    whole, rest = divmod(count, NUM_RANDOM)
    for _ in range(whole):
        file.write(numbers)
    file.write(numbers[: 2 * rest])


def write_weights(shape: Shape, path: Path) -> None:
    draw = random.Random(1)
    numbers = b"".join(bf16(draw.gauss(0, 0.05)) for _ in range(NUM_RANDOM))
    header, begin = {}, 0
    for name, dims in tensors(shape).items():
        end = begin + 2 * size(dims)
        header[name] = {"dtype": "BF16", "shape": dims, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, dims in tensors(shape).items():
            write_tensor(file, name, numbers, size(dims))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("directory", type=Path)
    parser.add_argument("requests", type=int, nargs="?", default=64)
    parser.add_argument("source_tokens", type=int, nargs="?", default=32)
    parser.add_argument("new_tokens", type=int, nargs="?", default=64)
    args = parser.parse_args()
    shape, out = SHAPES[args.shape], args.directory
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config(shape), indent=1))
    write_weights(shape, out / "model.safetensors")
    draw = random.Random(2)
    params = {
        "num_beams": 4,
        "max_new_tokens": args.new_tokens,
        "min_new_tokens": args.new_tokens,
    }
    with (out / "requests.jsonl").open("w") as file:
        for _ in range(args.requests):
            prompt = [
                draw.randrange(3, shape.vocabulary - 1)
                for _ in range(args.source_tokens)
            ]
            file.write(json.dumps({"prompt_tokens": prompt, "params": params}) + "\n")


if __name__ == "__main__":
    main()

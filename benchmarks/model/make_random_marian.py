"""Writes a Marian-shaped model of random weights, in bf16, and requests for it,
to measure shapes that need no sense: Opus-MT's by default (Helsinki-NLP's
models: 6 + 6 layers of 512, 74 million parameters).

    make_random_marian.py DIR [REQUESTS [SOURCE_TOKENS [NEW_TOKENS]]]
    espalier batch -m DIR --device cuda --figures --input DIR/requests.jsonl -o /dev/null

Each request generates all of its NEW_TOKENS. Needs numpy.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np

HIDDEN, FEED_FORWARD, LAYERS, HEADS, VOCABULARY = 512, 2048, 6, 8, 58101
CONFIG = {
    "model_type": "marian",
    "architectures": ["MarianMTModel"],
    "is_encoder_decoder": True,
    "activation_function": "swish",
    "d_model": HIDDEN,
    "decoder_attention_heads": HEADS,
    "decoder_ffn_dim": FEED_FORWARD,
    "decoder_layers": LAYERS,
    "decoder_start_token_id": VOCABULARY - 1,
    "decoder_vocab_size": VOCABULARY,
    "encoder_attention_heads": HEADS,
    "encoder_ffn_dim": FEED_FORWARD,
    "encoder_layers": LAYERS,
    "eos_token_id": 0,
    "max_position_embeddings": 512,
    "scale_embedding": True,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
    "vocab_size": VOCABULARY,
}


def shapes() -> dict[str, tuple[int, ...]]:
    result = {"model.shared.weight": (VOCABULARY, HIDDEN)}
    for stack in ("encoder", "decoder"):
        attentions = ["self_attn"] + ["encoder_attn"] * (stack == "decoder")
        for layer in range(LAYERS):
            name = f"model.{stack}.layers.{layer}."
            for attention in attentions:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    result[f"{name}{attention}.{part}.weight"] = (HIDDEN, HIDDEN)
                    result[f"{name}{attention}.{part}.bias"] = (HIDDEN,)
            result[f"{name}fc1.weight"] = (FEED_FORWARD, HIDDEN)
            result[f"{name}fc1.bias"] = (FEED_FORWARD,)
            result[f"{name}fc2.weight"] = (HIDDEN, FEED_FORWARD)
            result[f"{name}fc2.bias"] = (HIDDEN,)
            for part in [*attentions, "final"]:
                result[f"{name}{part}_layer_norm.weight"] = (HIDDEN,)
                result[f"{name}{part}_layer_norm.bias"] = (HIDDEN,)
    result["final_logits_bias"] = (1, VOCABULARY)
    return result


def bf16(name: str, shape: tuple[int, ...], random) -> bytes:
    if "norm.weight" in name:
        numbers = np.ones(shape, np.float32)
    else:
        numbers = random.standard_normal(shape, np.float32) * np.float32(0.05)
    return (numbers.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def write_weights(path: Path) -> None:
    random = np.random.default_rng(1)
    header, begin = {}, 0
    for name, shape in shapes().items():
        end = begin + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes().items():
            file.write(bf16(name, shape, random))


def main(directory: str, requests="64", source_tokens="32", new_tokens="64") -> None:
    out = Path(directory)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(CONFIG, indent=1))
    write_weights(out / "model.safetensors")
    random = np.random.default_rng(2)
    params = {
        "num_beams": 4,
        "max_new_tokens": int(new_tokens),
        "min_new_tokens": int(new_tokens),
    }
    with (out / "requests.jsonl").open("w") as file:
        for _ in range(int(requests)):
            prompt = random.integers(1, VOCABULARY - 1, int(source_tokens)).tolist()
            file.write(json.dumps({"prompt_tokens": prompt, "params": params}) + "\n")


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])

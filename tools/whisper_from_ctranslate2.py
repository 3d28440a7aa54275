"""Makes a Whisper directory of transformers from one of CTranslate2.

    python3 tools/whisper_from_ctranslate2.py FROM TO

FROM has model.bin, config.json and tokenizer.json, as faster-whisper's models do, in
float32 or float16; TO gets config.json, generation_config.json, model.safetensors and
tokenizer.json. Numbers are copied as they are. Needs Python alone.
"""

import argparse
import json
import re
import shutil
import sys
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

# CTranslate2's numbers of types: a name in safetensors, and bytes.
TYPES = {0: ("F32", 4), 1: ("I8", 1), 2: ("I16", 2), 3: ("I32", 4), 4: ("F16", 2)}
BINARY_VERSION = 6


@dataclass
class Tensor:
    dtype: str
    shape: list[int]
    data: bytes

    def rows(self, part: int, parts: int) -> "Tensor":
        count, size = self.shape[0] // parts, len(self.data) // parts
        return Tensor(self.dtype, [count, *self.shape[1:]],
                      self.data[part * size:(part + 1) * size])


def read_model(path: Path) -> dict[str, Tensor]:
    with path.open("rb") as file:
        return read_tensors(file)


def read_tensors(file: BinaryIO) -> dict[str, Tensor]:
    def number(form: str) -> int:
        return struct.unpack("<" + form, file.read(struct.calcsize(form)))[0]

    def text() -> str:
        return file.read(number("H")).rstrip(b"\0").decode()

    version, spec, _ = number("I"), text(), number("I")
    if version != BINARY_VERSION or spec != "WhisperSpec":
        raise SystemExit(f"model.bin must be a WhisperSpec of version {BINARY_VERSION}, "
                         f"got a {spec} of version {version}")
    tensors = {}
    for _ in range(number("I")):
        name = text()
        shape = [number("I") for _ in range(number("B"))]
        dtype, _ = TYPES[number("B")]
        tensors[name] = Tensor(dtype, shape, file.read(number("I")))
    for _ in range(number("I")):  # other names of some
        name = text()
        tensors[name] = tensors[text()]
    return tensors


def names_of(stack: str, layer: int) -> list[tuple[str, str, int, int]]:
    """Pairs of our names and CTranslate2's, and which of how many parts of rows."""
    ours, theirs = f"model.{stack}.layers.{layer}.", f"{stack}/layer_{layer}/"
    names = []
    for part, projection in enumerate(("q_proj", "k_proj", "v_proj")):
        names.append((f"self_attn.{projection}", "self_attention/linear_0", part, 3))
    names.append(("self_attn.out_proj", "self_attention/linear_1", 0, 1))
    if stack == "decoder":
        names += [("encoder_attn.q_proj", "attention/linear_0", 0, 1),
                  ("encoder_attn.k_proj", "attention/linear_1", 0, 2),
                  ("encoder_attn.v_proj", "attention/linear_1", 1, 2),
                  ("encoder_attn.out_proj", "attention/linear_2", 0, 1),
                  ("encoder_attn_layer_norm", "attention/layer_norm", 0, 1)]
    names += [("self_attn_layer_norm", "self_attention/layer_norm", 0, 1),
              ("fc1", "ffn/linear_0", 0, 1), ("fc2", "ffn/linear_1", 0, 1),
              ("final_layer_norm", "ffn/layer_norm", 0, 1)]
    return [(ours + a, theirs + b, part, parts) for a, b, part, parts in names]


def num_layers(tensors: dict[str, Tensor], stack: str) -> int:
    layers = (re.match(rf"{stack}/layer_(\d+)/", name) for name in tensors)
    return 1 + max(int(layer[1]) for layer in layers if layer)


def convert(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    weights = {
        "model.decoder.embed_tokens.weight": tensors["decoder/embeddings/weight"]}
    names = []
    for stack in ("encoder", "decoder"):
        weights[f"model.{stack}.embed_positions.weight"] = (
            tensors[f"{stack}/position_encodings/encodings"])
        names.append((f"model.{stack}.layer_norm", f"{stack}/layer_norm", 0, 1))
        for layer in range(num_layers(tensors, stack)):
            names += names_of(stack, layer)
    for conv in ("conv1", "conv2"):
        names.append((f"model.encoder.{conv}", f"encoder/{conv}", 0, 1))
    for ours, theirs, part, parts in names:
        is_norm = theirs.endswith("layer_norm")
        for kind, their_kind in (("weight", "gamma" if is_norm else "weight"),
                                 ("bias", "beta" if is_norm else "bias")):
            if ours.endswith("k_proj") and kind == "bias":
                continue  # Whisper's keys have none
            tensor = tensors[f"{theirs}/{their_kind}"].rows(part, parts)
            if not tensor.dtype.startswith("F"):
                raise SystemExit(f"{theirs}/{their_kind} must be float32 or float16, "
                                 f"got {tensor.dtype}")
            weights[f"{ours}.{kind}"] = tensor
    return weights


def write_safetensors(path: Path, weights: dict[str, Tensor]) -> None:
    header, end = {}, 0
    for name, tensor in weights.items():
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape,
                        "data_offsets": [end, end := end + len(tensor.data)]}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in weights.values():
            file.write(tensor.data)


def configs(tensors: dict[str, Tensor], ids: dict[str, int],
            theirs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    weights = {name: tensor.shape for name, tensor in tensors.items()}
    width, bands, _ = weights["encoder/conv1/weight"]
    heads = int.from_bytes(tensors["encoder/num_heads"].data, "little")
    end, start = ids["<|endoftext|>"], ids["<|startoftranscript|>"]
    tokens = {"decoder_start_token_id": start, "eos_token_id": end,
              "bos_token_id": end, "pad_token_id": end}
    config = {
        "architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper",
        "is_encoder_decoder": True, "activation_function": "gelu",
        "vocab_size": weights["decoder/embeddings/weight"][0], "d_model": width,
        "num_mel_bins": bands,
        "max_source_positions": weights["encoder/position_encodings/encodings"][0],
        "max_target_positions": weights["decoder/position_encodings/encodings"][0],
        "tie_word_embeddings": True, **tokens}
    for stack in ("encoder", "decoder"):
        config |= {f"{stack}_layers": num_layers(tensors, stack),
                   f"{stack}_attention_heads": heads, f"{stack}_ffn_dim": 4 * width}
    generation = {
        **tokens, "max_length": config["max_target_positions"],
        # Vocabularies of English models have the languages, too.
        "is_multilingual": end != 50256,
        "suppress_tokens": theirs["suppress_ids"],
        "begin_suppress_tokens": theirs["suppress_ids_begin"],
        "alignment_heads": theirs["alignment_heads"]}
    return {"config.json": config, "generation_config.json": generation}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "source",
        metavar="FROM",
        type=Path,
        help="a directory with model.bin in float16 or float32, config.json and "
        "tokenizer.json",
    )
    parser.add_argument(
        "target", metavar="TO", type=Path, help="the directory to write, another one"
    )
    args = parser.parse_args()
    for name in ("model.bin", "config.json", "tokenizer.json"):
        if not (args.source / name).is_file():
            sys.exit(f"{args.source}: there is no {name}")
    if args.target.resolve() == args.source.resolve():
        sys.exit(f"{args.target}: TO must be another directory than FROM")
    tensors = read_model(args.source / "model.bin")
    tokenizer = json.loads((args.source / "tokenizer.json").read_text())
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    their_config = json.loads((args.source / "config.json").read_text())
    converted = convert(tensors)  # all of it, before anything is written
    args.target.mkdir(parents=True, exist_ok=True)
    for name, config in configs(tensors, ids, their_config).items():
        (args.target / name).write_text(json.dumps(config, indent=2) + "\n")
    write_safetensors(args.target / "model.safetensors", converted)
    shutil.copy(args.source / "tokenizer.json", args.target)
    print(f"wrote {args.target}")


if __name__ == "__main__":
    main()

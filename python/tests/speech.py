"""Small random Whisper models, a network of voice activity that takes a tone of
1 kHz for speech, and audio, made for tests; their twins in C++ are
tests/whisper_directory.h and tests/speech/tone_network.h."""

import array
import json
import math
import random
import shutil
import struct

from conftest import SOURCE

WIDTH, BANDS = 16, 80
# Its windows have a second of audio.
WINDOW, CONTEXT = 100, 40


def write_safetensors(path, tensors):
    """`tensors` are pairs of a shape and values, by name."""
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        raw = array.array("f", values).tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def whisper_tensors(vocab_size, rng):
    tensors = {}

    def add(name, shape, deviation, mean=0.0):
        values = [rng.gauss(mean, deviation) for _ in range(math.prod(shape))]
        tensors["model." + name] = (shape, values)

    def add_norm(name):
        add(name + ".weight", [WIDTH], 0.1, 1)
        add(name + ".bias", [WIDTH], 0.1)

    def add_linear(name, outputs, inputs):
        add(name + ".weight", [outputs, inputs], 0.4)
        add(name + ".bias", [outputs], 0.1)

    for number, inputs in (("1", BANDS), ("2", WIDTH)):
        add(f"encoder.conv{number}.weight", [WIDTH, inputs, 3], 0.25)
        add(f"encoder.conv{number}.bias", [WIDTH], 0.1)
    add("encoder.embed_positions.weight", [WINDOW // 2, WIDTH], 0.3)
    add("decoder.embed_positions.weight", [CONTEXT, WIDTH], 0.6)
    add("decoder.embed_tokens.weight", [vocab_size, WIDTH], 0.6)
    for stack in ("encoder", "decoder"):
        add_norm(stack + ".layer_norm")
        layer = stack + ".layers.0."
        for attention in ("self_attn", "encoder_attn")[: 1 + (stack == "decoder")]:
            for part in (".q_proj", ".v_proj", ".out_proj"):
                add_linear(layer + attention + part, WIDTH, WIDTH)
            add(layer + attention + ".k_proj.weight", [WIDTH, WIDTH], 0.4)
            add_norm(layer + attention + "_layer_norm")
        add_linear(layer + "fc1", 2 * WIDTH, WIDTH)
        add_linear(layer + "fc2", WIDTH, 2 * WIDTH)
        add_norm(layer + "final_layer_norm")
    return tensors


def write_whisper(directory, is_multilingual=True):
    """A directory of a model that writes noise."""
    tokenizer = "tokenizer" if is_multilingual else "old_english_tokenizer"
    shutil.copy(SOURCE / "tests/data/speech" / tokenizer / "tokenizer.json", directory)
    # <|endoftext|> is the first token after the text.
    end = 351 if is_multilingual else 353
    vocab_size = end + (1609 if is_multilingual else 107 + 1501)
    ends = {"decoder_start_token_id": end + 1, "eos_token_id": end}
    config = {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "vocab_size": vocab_size,
        "num_mel_bins": BANDS,
        "d_model": WIDTH,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 2 * WIDTH,
        "decoder_ffn_dim": 2 * WIDTH,
        "max_source_positions": WINDOW // 2,
        "max_target_positions": CONTEXT,
        "activation_function": "gelu",
        "is_encoder_decoder": True,
        "pad_token_id": end,
        **ends,
    }
    (directory / "config.json").write_text(json.dumps(config))
    generation = {"is_multilingual": is_multilingual, **ends}
    (directory / "generation_config.json").write_text(json.dumps(generation))
    tensors = whisper_tensors(vocab_size, random.Random(1))
    write_safetensors(directory / "model.safetensors", tensors)


def write_tone_network(path):
    tensors = {}

    def add(name, shape, values=()):
        all_values = [0.0] * math.prod(shape)
        for index, value in dict(values).items():
            all_values[index] = value
        tensors[name] = (shape, all_values)

    angles = [2 * math.pi * 1000 * i / 16000 for i in range(256)]
    stft = {i: math.cos(angle) for i, angle in enumerate(angles)}
    stft |= {129 * 256 + i: math.sin(angle) for i, angle in enumerate(angles)}
    add("stft_conv.weight", [258, 1, 256], stft)
    # The first channel, and its middle tap.
    for number, shape in enumerate(([128, 129], [64, 128], [64, 64], [128, 64]), 1):
        add(f"conv{number}.weight", [*shape, 3], {1: 1})
        add(f"conv{number}.bias", shape[:1])
    # Gates: in and out open, nothing is remembered.
    add("lstm_cell.weight_ih", [512, 128], {256 * 128: 1})
    add("lstm_cell.weight_hh", [512, 128])
    add("lstm_cell.bias_ih", [512], {0: 20, 128: -20, 384: 20})
    add("lstm_cell.bias_hh", [512])
    add("final_conv.weight", [1, 128, 1], {0: 20})
    add("final_conv.bias", [1], {0: -5})
    write_safetensors(path, tensors)


def wav_of(samples):
    """The bytes of a file of float32 at 16 kHz."""
    data = array.array("f", samples).tobytes()
    form = struct.pack("<HHIIHH", 3, 1, 16000, 64000, 4, 32)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form
    body += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def samples_of(duration, seed=1):
    """Noise in which, every other second, there is a tone of 1 kHz."""
    rng = random.Random(seed)
    samples = array.array("f")
    for i in range(round(duration * 16000)):
        tone = math.sin(2 * math.pi * 1000 * i / 16000) if i // 16000 % 2 else 0
        samples.append(0.5 * tone + rng.uniform(-0.3, 0.3))
    return samples

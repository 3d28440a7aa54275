"""The small models of each family that the C++ tests compare with transformers.

Each has what makes its family special at a size where it shows: windows shorter
than the prompts, caps that cut, biases and norms that are not nothing.
"""

from dataclasses import dataclass, field
from typing import Any

VOCAB_SIZE = 64
EOS = [2, 5, 9]


@dataclass(frozen=True)
class Shape:
    """One model: a directory's name, its configuration, how many requests."""

    name: str
    model_type: str
    config: dict[str, Any]
    num_requests: int
    max_length: int = 60  # of a prompt and what follows it
    dtype: str = "bfloat16"
    has_no_base_prefix: bool = False  # as a checkpoint without its head
    has_own_head: bool = False  # of T5, whose configuration does not say it
    # The id that shifts the positions of all after it: none is given one.
    padding: int | None = None
    weights: dict[str, float] = field(default_factory=dict)

    @property
    def has_encoder(self) -> bool:
        return self.config.get("is_encoder_decoder", False)


def _decoder(**changes: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "bos_token_id": 1,
        "eos_token_id": EOS,
        "pad_token_id": 0,
    } | changes


def _encoder_decoder(**changes: Any) -> dict[str, Any]:
    """BART and its like: two layers of the encoder, three of the decoder."""
    return {
        "vocab_size": VOCAB_SIZE,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": 64,
        "is_encoder_decoder": True,
        "bos_token_id": 1,
        "eos_token_id": EOS,
        "forced_eos_token_id": None,
        "pad_token_id": 0,
        "decoder_start_token_id": 3,
    } | changes


def _opt(**changes: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "ffn_dim": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "bos_token_id": 1,
        "eos_token_id": EOS,
        "pad_token_id": 0,
    } | changes


def _t5(**changes: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB_SIZE,
        "d_model": 32,
        "d_kv": 12,
        "d_ff": 48,
        "num_layers": 3,
        "num_decoder_layers": 2,
        "num_heads": 4,
        "relative_attention_num_buckets": 16,
        "relative_attention_max_distance": 24,
        "is_encoder_decoder": True,
        "eos_token_id": EOS,
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
    } | changes


def _rope(rope_type: str, **fields: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": rope_type} | fields}


_GEMMA = {
    "hidden_size": 40,
    "head_dim": 12,
    "num_attention_heads": 4,
    "query_pre_attn_scalar": 20,
}

SHAPES = [
    Shape(
        "llama_linear",
        "llama",
        _decoder(attention_bias=True, tie_word_embeddings=True)
        | _rope("linear", factor=2.0, rope_theta=500.0),
        12,
    ),
    Shape(
        "llama_dynamic",
        "llama",
        _decoder(mlp_bias=True, num_key_value_heads=4)
        | _rope("dynamic", factor=4.0, rope_theta=300.0),
        10,
        dtype="float16",
    ),
    Shape(
        "llama_llama3",
        "llama",
        _decoder(num_key_value_heads=1, head_dim=16)
        | _rope(
            "llama3",
            factor=8.0,
            rope_theta=1000.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=32,
        ),
        12,
    ),
    Shape(
        "llama_yarn",
        "llama",
        _decoder(hidden_act="gelu_pytorch_tanh")
        | _rope(
            "yarn",
            factor=4.0,
            rope_theta=1000.0,
            beta_fast=8.0,
            original_max_position_embeddings=16,
        ),
        12,
    ),
    Shape(
        "mistral",
        "mistral",
        _decoder(sliding_window=7, num_hidden_layers=3)
        | _rope("default", rope_theta=1000.0),
        30,
    ),
    Shape(
        "mistral_full",
        "mistral",
        _decoder(sliding_window=None, head_dim=16, tie_word_embeddings=True)
        | _rope("default", rope_theta=1000.0),
        12,
    ),
    Shape(
        "qwen2",
        "qwen2",
        _decoder(tie_word_embeddings=True) | _rope("default", rope_theta=1000.0),
        20,
    ),
    Shape(
        "qwen2_window",
        "qwen2",
        _decoder(
            num_hidden_layers=3,
            use_sliding_window=True,
            sliding_window=6,
            max_window_layers=1,
        )
        | _rope(
            "yarn",
            factor=2.0,
            rope_theta=1000.0,
            original_max_position_embeddings=32,
        ),
        22,
    ),
    Shape(
        "qwen3",
        "qwen3",
        _decoder(hidden_size=40, head_dim=16, tie_word_embeddings=True)
        | _rope("default", rope_theta=5000.0),
        20,
    ),
    Shape(
        "qwen3_window",
        "qwen3",
        _decoder(
            num_hidden_layers=3,
            head_dim=8,
            attention_bias=True,
            use_sliding_window=True,
            sliding_window=9,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        )
        | _rope("default", rope_theta=1000.0),
        22,
    ),
    Shape(
        "gemma2",
        "gemma2",
        _decoder(
            **_GEMMA,
            num_hidden_layers=4,
            sliding_window=6,
            attn_logit_softcapping=3.0,
            final_logit_softcapping=6.0,
        )
        | _rope("default", rope_theta=1000.0),
        24,
        dtype="float32",
    ),
    Shape(
        "gemma2_uncapped",
        "gemma2",
        _decoder(
            **_GEMMA,
            num_hidden_layers=2,
            sliding_window=10,
            attn_logit_softcapping=None,
            final_logit_softcapping=None,
            attention_bias=True,
            tie_word_embeddings=False,
        )
        | _rope("default", rope_theta=1000.0),
        18,
    ),
    Shape(
        "gemma3",
        "gemma3_text",
        _decoder(
            **_GEMMA,
            num_hidden_layers=6,
            sliding_window=5,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"]
            * 2,
            rope_parameters={
                "full_attention": {
                    "rope_type": "linear",
                    "factor": 8.0,
                    "rope_theta": 20000.0,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 200.0},
            },
        ),
        42,
    ),
    Shape(
        "phi3",
        "phi3",
        _decoder(sliding_window=7, num_key_value_heads=4)
        | _rope("default", rope_theta=1000.0),
        20,
    ),
    Shape(
        "phi3_longrope",
        "phi3",
        _decoder(
            num_attention_heads=2,
            num_key_value_heads=1,
            original_max_position_embeddings=48,
            max_position_embeddings=192,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 1000.0,
                "partial_rotary_factor": 0.75,
                "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5],
                "long_factor": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
            },
        ),
        22,
        max_length=48,
    ),
    Shape(
        "gpt2",
        "gpt2",
        {
            "vocab_size": VOCAB_SIZE,
            "n_positions": 64,
            "n_embd": 30,
            "n_layer": 3,
            "n_head": 3,
            "bos_token_id": 1,
            "eos_token_id": EOS,
            "pad_token_id": 0,
        },
        24,
        dtype="float32",
    ),
    Shape(
        "gpt2_bare",
        "gpt2",
        {
            "vocab_size": VOCAB_SIZE,
            "n_positions": 64,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "n_inner": 40,
            "activation_function": "gelu_pytorch_tanh",
            "scale_attn_weights": False,
            "layer_norm_epsilon": 1e-3,
            "bos_token_id": 1,
            "eos_token_id": EOS,
            "pad_token_id": 0,
        },
        18,
        has_no_base_prefix=True,
    ),
    Shape(
        "phi3_full",
        "phi3",
        _decoder(
            sliding_window=64,
            original_max_position_embeddings=48,
            max_position_embeddings=192,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 1000.0,
                "short_factor": [1.0, 1.2, 1.5, 2.0],
                "long_factor": [1.0, 4.0, 16.0, 32.0],
            },
        ),
        22,
        max_length=48,
    ),
    Shape(
        "marian",
        "marian",
        _encoder_decoder(scale_embedding=True, activation_function="swish"),
        26,
    ),
    Shape(
        "marian_relu",
        "marian",
        _encoder_decoder(
            d_model=36,
            encoder_attention_heads=3,
            decoder_attention_heads=3,
            activation_function="relu",
        ),
        20,
        dtype="float32",
    ),
    Shape("bart", "bart", _encoder_decoder(), 26),
    Shape(
        "bart_scaled",
        "bart",
        _encoder_decoder(
            encoder_layers=3,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            scale_embedding=True,
            activation_function="gelu_new",
        ),
        20,
        dtype="float32",
    ),
    Shape("t5", "t5", _t5(), 26),
    Shape(
        "t5_gated",
        "t5",
        _t5(
            feed_forward_proj="gated-gelu",
            tie_word_embeddings=False,
            num_heads=3,
            num_layers=2,
            decoder_start_token_id=7,
        ),
        26,
        dtype="float32",
        has_own_head=True,
    ),
    Shape(
        "gemma",
        "gemma",
        _decoder(hidden_size=40, head_dim=12, attention_bias=True)
        | _rope("default", rope_theta=1000.0),
        20,
    ),
    Shape(
        "stablelm",
        "stablelm",
        _decoder(use_qkv_bias=True, layer_norm_eps=1e-3)
        | _rope("default", rope_theta=1000.0, partial_rotary_factor=0.5),
        20,
    ),
    Shape(
        "stablelm_linear",
        "stablelm",
        _decoder(
            num_attention_heads=2,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            hidden_act="gelu_pytorch_tanh",
        )
        | _rope("linear", factor=2.0, rope_theta=1000.0),
        18,
    ),
    Shape("opt", "opt", _opt(), 20),
    Shape(
        "opt_projected",
        "opt",
        _opt(
            num_hidden_layers=3,
            do_layer_norm_before=False,
            word_embed_proj_dim=20,
            activation_function="gelu",
        ),
        20,
    ),
    Shape(
        "pegasus",
        "pegasus",
        _encoder_decoder(
            decoder_layers=2, scale_embedding=True, activation_function="relu"
        ),
        24,
        dtype="float32",
    ),
    Shape(
        "mt5",
        "mt5",
        _t5(feed_forward_proj="gated-gelu", num_heads=3),
        22,
        has_own_head=True,
    ),
    Shape(
        "gemma3_images",
        "gemma3",
        {
            "text_config": _decoder(
                **_GEMMA,
                num_hidden_layers=3,
                sliding_window=5,
                layer_types=["sliding_attention"] * 2 + ["full_attention"],
                rope_parameters={
                    "full_attention": {
                        "rope_type": "linear",
                        "factor": 8.0,
                        "rope_theta": 20000.0,
                    },
                    "sliding_attention": {"rope_type": "default", "rope_theta": 200.0},
                },
            ),
            "vision_config": {
                "hidden_size": 4,
                "intermediate_size": 4,
                "num_hidden_layers": 1,
                "num_attention_heads": 1,
                "image_size": 4,
                "patch_size": 2,
            },
            "mm_tokens_per_image": 4,
            "image_token_index": 63,
            "boi_token_index": 62,
            "eoi_token_index": 61,
            "eos_token_id": EOS,
        },
        20,
    ),
    Shape(
        "m2m_100",
        "m2m_100",
        _encoder_decoder(pad_token_id=1, decoder_start_token_id=2),
        26,
        padding=1,
    ),
    Shape(
        "m2m_100_odd",
        "m2m_100",
        _encoder_decoder(
            d_model=33,
            encoder_attention_heads=3,
            decoder_attention_heads=3,
            decoder_layers=2,
            scale_embedding=False,
            activation_function="gelu",
        ),
        20,
        dtype="float32",
        padding=0,
    ),
    Shape("mbart", "mbart", _encoder_decoder(scale_embedding=True), 26),
    Shape(
        "mbart_begun",
        "mbart",
        _encoder_decoder(
            encoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            activation_function="relu",
            decoder_start_token_id=None,
            bos_token_id=7,
        ),
        20,
        dtype="float32",
    ),
    Shape("umt5", "umt5", _t5(feed_forward_proj="gated-gelu"), 26),
    Shape(
        "umt5_unscaled",
        "umt5",
        _t5(
            num_heads=3,
            feed_forward_proj="relu",
            tie_word_embeddings=False,
            num_decoder_layers=3,
        ),
        20,
        dtype="float32",
        has_own_head=True,
    ),
]

// config.json in the forms in which models of each family are published, older
// ones included.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/cuda_limits.h"
#include "model/transformer_config.h"
#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::ScratchDirectory;

TransformerConfig ReadPublished(const std::string& config) {
  const ScratchDirectory directory;
  directory.Write("config.json", config);
  const auto read = ReadTransformerConfig(directory.path());
  EXPECT_OK(read);
  return *read;
}

TEST(PublishedConfigTest, Llama32) {
  const TransformerConfig config = ReadPublished(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009], "head_dim": 64,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 8192, "max_position_embeddings": 131072,
    "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32,
    "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1,
    "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0,
      "high_freq_factor": 4.0, "low_freq_factor": 1.0,
      "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 128256})");
  EXPECT_EQ(config.rope.type, RopeType::kLlama3);
  EXPECT_EQ(config.rope.original_context, 8192);
  EXPECT_EQ(config.max_context, 131072);
  EXPECT_OK(CheckCudaLimits(config));
}

TEST(PublishedConfigTest, Mistral) {
  const std::string form = R"({
    "architectures": ["MistralForCausalLM"], "bos_token_id": 1,
    "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "model_type": "mistral",
    "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
    "tie_word_embeddings": false, "vocab_size": 32000, "sliding_window": )";
  const TransformerConfig first = ReadPublished(form + "4096}");
  EXPECT_EQ(std::ranges::count(first.layers, 4096, &LayerConfig::window), 32);
  EXPECT_OK(CheckCudaLimits(first));
  const TransformerConfig later = ReadPublished(form + "null}");
  EXPECT_EQ(std::ranges::count(later.layers, 0, &LayerConfig::window),
            later.num_layers());
  EXPECT_EQ(later.head_dim, 128);
  EXPECT_OK(CheckCudaLimits(later));
}

TEST(PublishedConfigTest, Qwen25) {
  const TransformerConfig config = ReadPublished(R"({
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151645, "hidden_act": "silu",
    "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
    "max_position_embeddings": 32768, "max_window_layers": 21,
    "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 32768, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "use_cache": true, "use_sliding_window": false,
    "vocab_size": 151936})");
  EXPECT_TRUE(config.has_qkv_bias);
  EXPECT_FALSE(config.has_output_bias);
  EXPECT_EQ(std::ranges::count(config.layers, 0, &LayerConfig::window),
            config.num_layers());
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_OK(CheckCudaLimits(config));
}

TEST(PublishedConfigTest, Qwen3) {
  const TransformerConfig config = ReadPublished(R"({
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645,
    "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
    "intermediate_size": 3072, "max_position_embeddings": 40960,
    "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16,
    "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
    "tie_word_embeddings": true, "use_sliding_window": false,
    "vocab_size": 151936})");
  EXPECT_TRUE(config.has_qk_norms);
  EXPECT_FALSE(config.has_qkv_bias);
  EXPECT_EQ(config.q_size(), 2048);  // not hidden_size
  EXPECT_OK(CheckCudaLimits(config));
}

TEST(PublishedConfigTest, Gemma2) {
  const TransformerConfig config = ReadPublished(R"({
    "architectures": ["Gemma2ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "attn_logit_softcapping": 50.0,
    "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1,
    "final_logit_softcapping": 30.0, "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304,
    "intermediate_size": 9216, "max_position_embeddings": 8192,
    "model_type": "gemma2", "num_attention_heads": 8, "num_hidden_layers": 26,
    "num_key_value_heads": 4, "pad_token_id": 0, "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096,
    "vocab_size": 256000})");
  EXPECT_EQ(std::ranges::count(config.layers, 4096, &LayerConfig::window), 13);
  EXPECT_EQ(config.layers[0].window, 4096);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.attention_scale(), 0.0625f);
}

TEST(PublishedConfigTest, Gemma3) {
  const TransformerConfig config = ReadPublished(R"({
    "architectures": ["Gemma3ForCausalLM"], "attention_bias": false,
    "attn_logit_softcapping": null, "bos_token_id": 2,
    "cache_implementation": "hybrid", "eos_token_id": [1, 106],
    "final_logit_softcapping": null, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152,
    "intermediate_size": 6912, "max_position_embeddings": 32768,
    "model_type": "gemma3_text", "num_attention_heads": 4,
    "num_hidden_layers": 26, "num_key_value_heads": 1,
    "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000, "rope_scaling": null,
    "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6,
    "vocab_size": 262144})");
  EXPECT_EQ(std::ranges::count(config.layers, 512, &LayerConfig::window), 22);
  EXPECT_EQ(config.layers[5].window, 0);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.local_rope->theta, 1e4);
}

// "1, 1, 1, ...": factors of longrope.
std::string Ones(int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += i > 0 ? ", 1.0" : "1.0";
  return list;
}

// Its text model leaves out the sizes that it has by default.
TEST(PublishedConfigTest, Gemma3WithImages) {
  const TransformerConfig config = ReadPublished(R"({
    "architectures": ["Gemma3ForConditionalGeneration"],
    "boi_token_index": 255999, "eoi_token_index": 256000,
    "eos_token_id": [1, 106], "image_token_index": 262144,
    "initializer_range": 0.02, "mm_tokens_per_image": 256,
    "model_type": "gemma3", "text_config": {"hidden_size": 2560,
      "intermediate_size": 10240, "model_type": "gemma3_text",
      "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0,
        "rope_type": "linear"}, "sliding_window": 1024},
    "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152,
      "image_size": 896, "model_type": "siglip_vision_model",
      "num_hidden_layers": 27, "patch_size": 14}})");
  EXPECT_EQ(config.vocab_size, 262208);
  EXPECT_EQ(config.num_heads, 8);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.max_context, 131072);
  EXPECT_EQ(std::ranges::count(config.layers, 1024, &LayerConfig::window), 29);
  EXPECT_EQ(config.rope.factor, 8);
  EXPECT_EQ(config.eos_token_ids, (std::vector<TokenId>{1, 106}));
  EXPECT_OK(CheckCudaLimits(config));
}

TEST(PublishedConfigTest, Phi3WithALongContext) {
  const TransformerConfig config = ReadPublished(Concat(R"({
    "architectures": ["Phi3ForCausalLM"], "attention_bias": false,
    "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
    "bos_token_id": 1, "embd_pdrop": 0.0, "eos_token_id": 32000,
    "hidden_act": "silu", "hidden_size": 3072, "intermediate_size": 8192,
    "max_position_embeddings": 131072, "model_type": "phi3",
    "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 32, "original_max_position_embeddings": 4096,
    "pad_token_id": 32000, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
    "rope_scaling": {"type": "longrope", "short_factor": [)",
                                                        Ones(48),
                                                        R"(],
    "long_factor": [)",
                                                        Ones(48), R"(]},
    "rope_theta": 10000.0, "sliding_window": 262144,
    "tie_word_embeddings": false, "vocab_size": 32064})"));
  EXPECT_EQ(config.max_context, 4096);
  EXPECT_EQ(config.head_dim, 96);
  EXPECT_NEAR(config.rope.attention_factor, 1.1902380714238083, 1e-12);
  EXPECT_OK(CheckCudaLimits(config));
}

TEST(PublishedConfigTest, Phi4Mini) {
  const TransformerConfig config = ReadPublished(Concat(R"({
    "architectures": ["Phi3ForCausalLM"], "attention_bias": false,
    "bos_token_id": 199999, "eos_token_id": 199999, "full_attn_mod": 1,
    "hidden_act": "silu", "hidden_size": 3072, "intermediate_size": 8192,
    "interpolate_factor": 1, "lm_head_bias": false,
    "max_position_embeddings": 131072, "mlp_bias": false,
    "model_type": "phi3", "num_attention_heads": 24, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "original_max_position_embeddings": 4096,
    "pad_token_id": 199999, "partial_rotary_factor": 0.75,
    "rms_norm_eps": 1e-05, "rope_scaling": {"type": "longrope",
    "short_factor": [)",
                                                        Ones(48),
                                                        R"(],
    "long_factor": [)",
                                                        Ones(48), R"(]},
    "rope_theta": 10000.0, "sliding_window": 262144,
    "tie_word_embeddings": true, "vocab_size": 200064})"));
  EXPECT_EQ(config.rope.RotaryDim(config.head_dim), 96);
  EXPECT_EQ(config.head_dim, 128);
}

TEST(PublishedConfigTest, Gpt2) {
  const TransformerConfig config = ReadPublished(R"({
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1,
    "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024,
    "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
    "resid_pdrop": 0.1, "summary_activation": null,
    "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
    "summary_type": "cls_index", "summary_use_proj": true,
    "task_specific_params": {"text-generation": {"do_sample": true,
    "max_length": 50}}, "vocab_size": 50257})");
  EXPECT_EQ(config.layers[0].intermediate_size, 3072);
  EXPECT_EQ(config.max_context, 1024);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.attention_scale(), 0.125f);
}

TEST(PublishedConfigTest, Gemma1) {
  const TransformerConfig config = ReadPublished(R"({
    "architectures": ["GemmaForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 2, "eos_token_id": 1,
    "head_dim": 256, "hidden_act": "gelu", "hidden_activation": null,
    "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 16384, "max_position_embeddings": 8192,
    "model_type": "gemma", "num_attention_heads": 8, "num_hidden_layers": 18,
    "num_key_value_heads": 1, "pad_token_id": 0, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
    "use_cache": true, "vocab_size": 256000})");
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_TRUE(config.scales_embeddings && config.norm_adds_one);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.num_kv_heads, 1);
  EXPECT_OK(CheckCudaLimits(config));
}

TEST(PublishedConfigTest, StableLm2) {
  const TransformerConfig config = ReadPublished(R"({
    "architectures": ["StableLmForCausalLM"], "bos_token_id": 100257,
    "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 5632,
    "layer_norm_eps": 1e-05, "max_position_embeddings": 4096,
    "model_type": "stablelm", "num_attention_heads": 32,
    "num_hidden_layers": 24, "num_key_value_heads": 32,
    "partial_rotary_factor": 0.25, "rope_theta": 10000,
    "tie_word_embeddings": false, "torch_dtype": "float16", "use_cache": true,
    "use_qkv_bias": true, "vocab_size": 100352})");
  EXPECT_EQ(config.norm, NormKind::kLayer);
  EXPECT_TRUE(config.has_qkv_bias);
  EXPECT_FALSE(config.has_output_bias);
  EXPECT_EQ(config.rope.RotaryDim(config.head_dim), 16);
  EXPECT_OK(CheckCudaLimits(config));
}

TEST(PublishedConfigTest, Opt) {
  const std::string form = R"({
    "_remove_final_layer_norm": false, "activation_dropout": 0.0,
    "activation_function": "relu", "architectures": ["OPTForCausalLM"],
    "attention_dropout": 0.0, "bos_token_id": 2, "dropout": 0.1,
    "eos_token_id": 2, "init_std": 0.02, "layerdrop": 0.0,
    "max_position_embeddings": 2048, "model_type": "opt",
    "num_attention_heads": 16, "num_hidden_layers": 24, "pad_token_id": 1,
    "prefix": "</s>", "torch_dtype": "float16", "use_cache": true,
    "vocab_size": 50272, "hidden_size": )";
  const TransformerConfig large = ReadPublished(
      form + R"(2048, "do_layer_norm_before": true, "ffn_dim": 8192,
                "word_embed_proj_dim": 2048})");
  EXPECT_FALSE(large.norms_sums || large.projects_embeddings());
  EXPECT_EQ(large.position_offset, 2);
  EXPECT_OK(CheckCudaLimits(large));
  const TransformerConfig of_350m = ReadPublished(
      form + R"(1024, "do_layer_norm_before": false, "ffn_dim": 4096,
                "word_embed_proj_dim": 512})");
  EXPECT_TRUE(of_350m.norms_sums);
  EXPECT_EQ(of_350m.embedding_size(), 512);
}

TEST(PublishedConfigTest, Pegasus) {
  const TransformerConfig config = ReadPublished(R"({
    "activation_dropout": 0.1, "activation_function": "relu",
    "add_bias_logits": false, "add_final_layer_norm": true,
    "architectures": ["PegasusForConditionalGeneration"],
    "attention_dropout": 0.1, "bos_token_id": 0, "classif_dropout": 0.0,
    "d_model": 1024, "decoder_attention_heads": 16, "decoder_ffn_dim": 4096,
    "decoder_layerdrop": 0.0, "decoder_layers": 16,
    "decoder_start_token_id": 0, "dropout": 0.1, "encoder_attention_heads": 16,
    "encoder_ffn_dim": 4096, "encoder_layerdrop": 0.0, "encoder_layers": 16,
    "eos_token_id": 1, "extra_pos_embeddings": 1, "force_bos_token_to_be_generated": false,
    "forced_eos_token_id": 1, "is_encoder_decoder": true,
    "length_penalty": 0.6, "max_length": 64, "max_position_embeddings": 512,
    "model_type": "pegasus", "normalize_before": true,
    "normalize_embedding": false, "num_beams": 8, "num_hidden_layers": 16,
    "pad_token_id": 0, "scale_embedding": true,
    "static_position_embeddings": true, "vocab_size": 96103})");
  EXPECT_FALSE(config.norms_sums);
  EXPECT_EQ(config.positions, PositionKind::kSinusoidal);
  EXPECT_TRUE(config.scales_embeddings && config.tie_word_embeddings);
  EXPECT_EQ(config.encoder->layers.size(), 16);
  EXPECT_OK(CheckCudaLimits(config));
}

TEST(PublishedConfigTest, Nllb200) {
  const TransformerConfig config = ReadPublished(R"({
    "activation_dropout": 0.0, "activation_function": "relu",
    "architectures": ["M2M100ForConditionalGeneration"],
    "attention_dropout": 0.1, "bos_token_id": 0, "d_model": 1024,
    "decoder_attention_heads": 16, "decoder_ffn_dim": 4096,
    "decoder_layerdrop": 0, "decoder_layers": 12, "decoder_start_token_id": 2,
    "dropout": 0.1, "encoder_attention_heads": 16, "encoder_ffn_dim": 4096,
    "encoder_layerdrop": 0, "encoder_layers": 12, "eos_token_id": 2,
    "init_std": 0.02, "is_encoder_decoder": true, "max_length": 200,
    "max_position_embeddings": 1024, "model_type": "m2m_100",
    "num_hidden_layers": 12, "pad_token_id": 1, "scale_embedding": true,
    "tokenizer_class": "NllbTokenizer", "torch_dtype": "float32",
    "use_cache": true, "vocab_size": 256206})");
  EXPECT_FALSE(config.norms_sums);
  EXPECT_EQ(config.sinusoids, SinusoidKind::kTensor2Tensor);
  EXPECT_EQ(config.position_offset, 2);
  EXPECT_TRUE(config.scales_embeddings && config.tie_word_embeddings);
  EXPECT_OK(CheckCudaLimits(config));
}

TEST(PublishedConfigTest, WhisperLargeV3) {
  const TransformerConfig config = ReadPublished(R"({
    "activation_dropout": 0.0, "activation_function": "gelu",
    "apply_spec_augment": false,
    "architectures": ["WhisperForConditionalGeneration"],
    "attention_dropout": 0.0, "begin_suppress_tokens": [220, 50257],
    "bos_token_id": 50257, "classifier_proj_size": 256, "d_model": 1280,
    "decoder_attention_heads": 20, "decoder_ffn_dim": 5120,
    "decoder_layerdrop": 0.0, "decoder_layers": 32,
    "decoder_start_token_id": 50258, "dropout": 0.0,
    "encoder_attention_heads": 20, "encoder_ffn_dim": 5120,
    "encoder_layerdrop": 0.0, "encoder_layers": 32, "eos_token_id": 50257,
    "init_std": 0.02, "is_encoder_decoder": true, "mask_feature_length": 10,
    "mask_feature_min_masks": 0, "mask_feature_prob": 0.0,
    "mask_time_length": 10, "mask_time_min_masks": 2, "mask_time_prob": 0.05,
    "max_length": 448, "max_source_positions": 1500,
    "max_target_positions": 448, "median_filter_width": 7,
    "model_type": "whisper", "num_hidden_layers": 32, "num_mel_bins": 128,
    "pad_token_id": 50256, "scale_embedding": false, "torch_dtype": "float16",
    "use_cache": true, "use_weighted_layer_sum": false, "vocab_size": 51866})");
  EXPECT_EQ(config.encoder->num_mel_bins, 128);
  EXPECT_EQ(config.encoder->max_tokens, 1500);
  EXPECT_EQ(config.max_context, 448);
  EXPECT_EQ(config.encoder->decoder_start_token_id, 50258);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(50257));
  EXPECT_TRUE(config.lacks_key_bias && config.tie_word_embeddings);
  EXPECT_EQ(config.position_offset, 0);
  EXPECT_FALSE(config.norms_sums || config.scales_embeddings);
}

TEST(PublishedConfigTest, Mbart50) {
  const TransformerConfig config = ReadPublished(R"({
    "_num_labels": 3, "activation_dropout": 0.0,
    "activation_function": "relu", "add_bias_logits": false,
    "add_final_layer_norm": true,
    "architectures": ["MBartForConditionalGeneration"],
    "attention_dropout": 0.0, "bos_token_id": 0, "classif_dropout": 0.0,
    "classifier_dropout": 0.0, "d_model": 1024, "decoder_attention_heads": 16,
    "decoder_ffn_dim": 4096, "decoder_layerdrop": 0.0, "decoder_layers": 12,
    "decoder_start_token_id": 2, "dropout": 0.1, "early_stopping": true,
    "encoder_attention_heads": 16, "encoder_ffn_dim": 4096,
    "encoder_layerdrop": 0.0, "encoder_layers": 12, "eos_token_id": 2,
    "forced_eos_token_id": 2, "init_std": 0.02, "is_encoder_decoder": true,
    "max_length": 200, "max_position_embeddings": 1024,
    "model_type": "mbart", "normalize_before": true,
    "normalize_embedding": true, "num_beams": 5, "num_hidden_layers": 12,
    "output_past": true, "pad_token_id": 1, "scale_embedding": true,
    "static_position_embeddings": false, "tokenizer_class": "MBart50Tokenizer",
    "use_cache": true, "vocab_size": 250054})");
  EXPECT_FALSE(config.norms_sums);
  EXPECT_TRUE(config.has_embedding_norm && config.scales_embeddings);
  EXPECT_EQ(config.position_offset, 2);
  EXPECT_OK(CheckCudaLimits(config));
}

// T5 1.1 by its fields.
TEST(PublishedConfigTest, Madlad400) {
  const TransformerConfig config = ReadPublished(R"({
    "architectures": ["T5ForConditionalGeneration"],
    "classifier_dropout": 0.0, "d_ff": 8192, "d_kv": 128, "d_model": 1024,
    "decoder_start_token_id": 0, "dense_act_fn": "gelu_new",
    "dropout_rate": 0.1, "eos_token_id": 2, "feed_forward_proj": "gated-gelu",
    "initializer_factor": 1.0, "is_encoder_decoder": true,
    "is_gated_act": true, "layer_norm_epsilon": 1e-06, "model_type": "t5",
    "n_positions": 512, "num_decoder_layers": 32, "num_heads": 16,
    "num_layers": 32, "output_past": true, "pad_token_id": 1,
    "relative_attention_max_distance": 128,
    "relative_attention_num_buckets": 32, "task_specific_params": {},
    "tie_word_embeddings": false, "use_cache": true, "vocab_size": 256000})");
  EXPECT_TRUE(config.has_gate && config.may_lack_head);
  EXPECT_FALSE(config.scales_head);
  EXPECT_EQ(config.q_size(), 2048);
  EXPECT_OK(CheckCudaLimits(config));
}

TEST(PublishedConfigTest, Umt5) {
  const TransformerConfig config = ReadPublished(R"({
    "architectures": ["UMT5ForConditionalGeneration"],
    "classifier_dropout": 0.0, "d_ff": 1024, "d_kv": 64, "d_model": 512,
    "decoder_start_token_id": 0, "dense_act_fn": "gelu_new",
    "dropout_rate": 0.1, "eos_token_id": 1, "feed_forward_proj": "gated-gelu",
    "initializer_factor": 1.0, "is_encoder_decoder": true,
    "is_gated_act": true, "layer_norm_epsilon": 1e-06, "model_type": "umt5",
    "num_decoder_layers": 8, "num_heads": 6, "num_layers": 8,
    "output_past": true, "pad_token_id": 0,
    "relative_attention_max_distance": 128,
    "relative_attention_num_buckets": 32, "scalable_attention": true,
    "tie_word_embeddings": false, "tokenizer_class": "T5Tokenizer",
    "use_cache": true, "vocab_size": 256384})");
  EXPECT_TRUE(config.has_gate && config.has_layer_distances);
  EXPECT_FALSE(config.scales_head);
  EXPECT_OK(CheckCudaLimits(config));
}

TEST(PublishedConfigTest, Mt0) {
  const TransformerConfig config = ReadPublished(R"({
    "architectures": ["MT5ForConditionalGeneration"], "d_ff": 1024,
    "d_kv": 64, "d_model": 512, "decoder_start_token_id": 0,
    "dense_act_fn": "gelu_new", "dropout_rate": 0.1, "eos_token_id": 1,
    "feed_forward_proj": "gated-gelu", "initializer_factor": 1.0,
    "is_encoder_decoder": true, "is_gated_act": true,
    "layer_norm_epsilon": 1e-06, "model_type": "mt5", "num_decoder_layers": 8,
    "num_heads": 6, "num_layers": 8, "pad_token_id": 0,
    "relative_attention_max_distance": 128,
    "relative_attention_num_buckets": 32, "tie_word_embeddings": false,
    "tokenizer_class": "T5Tokenizer", "use_cache": true,
    "vocab_size": 250112})");
  EXPECT_TRUE(config.has_gate);
  EXPECT_FALSE(config.scales_head);
  EXPECT_EQ(config.q_size(), 384);  // not hidden_size
  EXPECT_OK(CheckCudaLimits(config));
}

}  // namespace
}  // namespace espalier

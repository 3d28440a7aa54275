// config.json in the forms in which models of each family are published, older
// ones among them: what is read of each.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

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
  EXPECT_EQ(std::ranges::count(first.windows, 4096), 32);
  EXPECT_OK(CheckCudaLimits(first));
  const TransformerConfig later = ReadPublished(form + "null}");
  EXPECT_TRUE(later.windows.empty());
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
  EXPECT_TRUE(config.windows.empty());
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
  EXPECT_EQ(std::ranges::count(config.windows, 4096), 13);
  EXPECT_EQ(config.window(0), 4096);
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
  EXPECT_EQ(std::ranges::count(config.windows, 512), 22);
  EXPECT_EQ(config.window(5), 0);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.local_rope->theta, 1e4);
}

// "1, 1, 1, ...": factors of longrope.
std::string Ones(int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += i > 0 ? ", 1.0" : "1.0";
  return list;
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
  EXPECT_EQ(config.intermediate_size, 3072);
  EXPECT_EQ(config.max_context, 1024);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.attention_scale(), 0.125f);
}

}  // namespace
}  // namespace espalier

// config.json of each family: missing fields have the defaults of transformers'
// configuration classes, and unsupported values that change the computation are
// refused by field and value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "model/transformer_config.h"
#include "tests/family_models.h"
#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::FamilyPath;
using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Replaced fields of a config.json; "missing" removes one.
using Changes = std::vector<std::pair<std::string, std::string>>;
constexpr char kAbsent[] = "missing";

absl::StatusOr<TransformerConfig> ReadChanged(const std::string& model,
                                              const Changes& changes) {
  json::object config =
      ParseJson(*ReadFile(FamilyPath(model) + "/config.json", 1 << 20))
          ->as_object();
  for (const auto& [key, value] : changes) {
    config.erase(key);
    if (value != kAbsent) config[key] = *ParseJson(value);
  }
  const ScratchDirectory directory;
  directory.Write("config.json", WriteJson(config));
  return ReadTransformerConfig(directory.path());
}

struct BadConfig {
  const char* model;
  Changes changes;
  const char* message;
};

void ExpectAllRefused(const std::vector<BadConfig>& cases) {
  for (const BadConfig& bad : cases) {
    ASSERT_OK(ReadChanged(bad.model, {}));
    EXPECT_THAT(ReadChanged(bad.model, bad.changes),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(std::string("config.json: ") + bad.message)))
        << bad.model;
  }
}

TEST(FamilyConfigTest, WhatNoFamilyHasIsRefused) {
  ExpectAllRefused({
      {"qwen2",
       {{"model_type", "\"qwen2_moe\""}},
       "model_type must be bart, gemma, gemma2, gemma3, gemma3_text, gpt2, "
       "llama, m2m_100, marian, mbart, mistral, mt5, opt, pegasus, phi3, "
       "qwen2, "
       "qwen3, "
       "stablelm, t5, umt5 or whisper, got \"qwen2_moe\""},
      {"qwen3",
       {{"model_type", "\"internvl\""},
        {"llm_config", "{\"model_type\": \"qwen2\"}"}},
       "model_type \"internvl\" is of a model that reads more than text: its "
       "text model lies within, in llm_config (model_type \"qwen2\"), and is "
       "not read from there; give a text model, of model_type bart, "},
      {"gemma3",
       {{"model_type", "\"gemma3\""}},
       "architectures must be [\"Gemma3ForConditionalGeneration\"], got "},
      {"phi3", {{"model_type", "[\"phi3\"]"}}, "model_type must be bart, "},
      {"qwen3",
       {{"architectures", "[\"Qwen3ForSequenceClassification\"]"}},
       "architectures must be [\"Qwen3ForCausalLM\"], got [\"Qwen3ForSeq"},
      {"gpt2",
       {{"architectures", "[\"GPT2Model\"]"}},
       "architectures must be [\"GPT2LMHeadModel\"], got [\"GPT2Model\"]"},
      {"mistral",
       {{"architectures", kAbsent}},
       "architectures must be [\"MistralForCausalLM\"], got nothing"},
      {"gemma2",
       {{"use_bidirectional_attention", "true"}},
       "use_bidirectional_attention true is not supported"},
      {"gemma3",
       {{"use_bidirectional_attention", "true"}},
       "use_bidirectional_attention true is not supported"},
      {"qwen3", {{"is_causal", "false"}}, "is_causal false is not supported"},
      {"gpt2",
       {{"add_cross_attention", "true"}},
       "add_cross_attention true is not supported"},
      {"gpt2",
       {{"is_encoder_decoder", "true"}},
       "is_encoder_decoder true is not supported"},
      {"gpt2",
       {{"pruned_heads", "{\"1\": [0]}"}},
       "pruned_heads must be {}, got {\"1\""},
      {"mistral",
       {{"quantization_config", "{\"quant_method\": \"gptq\", \"bits\": 4}"}},
       "quantization_config: quant_method must be \"compressed-tensors\" or "
       "\"fp8\", got \"gptq\"; give the model as it was before it was "
       "quantised: the option weights (int8, int4 or fp8) quantises it as it "
       "is loaded"},
  });
}

TEST(FamilyConfigTest, FieldsOutOfRangeAreRefused) {
  ExpectAllRefused({
      {"mistral",
       {{"hidden_act", "\"gelu\""}},
       "hidden_act must be silu, swish, gelu_new or gelu_pytorch_tanh, got "},
      {"gemma2",
       {{"hidden_activation", "\"relu\""}},
       "hidden_activation must be silu, swish, gelu_new or "
       "gelu_pytorch_tanh, "},
      {"gpt2",
       {{"activation_function", "\"tanh\""}},
       "activation_function must be silu, swish, gelu, gelu_new, "
       "gelu_pytorch_tanh or relu, got "},
      {"gpt2",
       {{"num_attention_heads", "1"}},
       "num_attention_heads must be n_head, 3, which it is another name of, "
       "got 1"},
      {"gpt2",
       {{"n_layer", kAbsent}, {"num_hidden_layers", "0"}},
       "num_hidden_layers must be an integer in [1, 4096], got 0"},
      {"gpt2",
       {{"scale_attn_by_inverse_layer_idx", "true"}},
       "scale_attn_by_inverse_layer_idx true is not supported"},
      {"gpt2",
       {{"scale_attn_weights", "1"}},
       "scale_attn_weights must be true or false, got 1"},
      {"gpt2", {{"n_embd", kAbsent}}, "n_embd is missing"},
      {"gpt2", {{"n_embd", "31"}}, "n_embd 31 must be a multiple of n_head 3"},
      {"gpt2",
       {{"n_positions", "0"}},
       "n_positions must be an integer in [1, "},
      {"gpt2", {{"n_layer", "1e9"}}, "n_layer must be an integer in [1, 4096]"},
      {"gpt2", {{"n_head", "0.5"}}, "n_head must be an integer in [1, 16384]"},
      {"gpt2", {{"n_inner", "-4"}}, "n_inner must be an integer in [1, "},
      {"gpt2",
       {{"n_embd", "1048575"}, {"n_head", "1"}},
       "n_embd / n_head must be at most 4096, got 1048575"},
      {"gpt2",
       {{"layer_norm_epsilon", "0"}},
       "layer_norm_epsilon must be a number in (0, 1], got 0"},
      {"qwen3",
       {{"attention_bias", "\"yes\""}},
       "attention_bias must be true or false, got \"yes\""},
      {"llama_dynamic",
       {{"mlp_bias", "0"}},
       "mlp_bias must be true or false, got 0"},
      {"qwen3", {{"head_dim", "7"}}, "head_dim must be even and at least 2"},
      {"qwen3",
       {{"num_key_value_heads", "3"}},
       "num_attention_heads 4 must be a multiple of num_key_value_heads 3"},
      {"mistral",
       {{"num_key_value_heads", kAbsent}},
       "num_attention_heads 4 must be a multiple of num_key_value_heads 8"},
      {"qwen2",
       {{"tie_word_embeddings", "1"}},
       "tie_word_embeddings must be true or false, got 1"},
      {"phi3", {{"rms_norm_eps", "2"}}, "rms_norm_eps must be a number in (0"},
      {"gemma2",
       {{"query_pre_attn_scalar", "0"}},
       "query_pre_attn_scalar must be a number in (0, "},
      {"gemma2",
       {{"attn_logit_softcapping", "-1"}},
       "attn_logit_softcapping must be a number in (0, "},
      {"gemma3",
       {{"attn_logit_softcapping", "50"}},
       "attn_logit_softcapping must be null, got 50"},
      {"gemma2",
       {{"final_logit_softcapping", "0"}},
       "final_logit_softcapping must be a number in (0, "},
      {"gemma3",
       {{"final_logit_softcapping", "1e300"}},
       "final_logit_softcapping must be a number in (0, "},
  });
}

TEST(FamilyConfigTest, DecodersThatAreNotComputedAreRefused) {
  ExpectAllRefused({
      {"gemma3_images",
       {{"text_config", kAbsent}},
       "text_config must be an object, got nothing"},
      {"gemma3_images",
       {{"tie_word_embeddings", "false"}},
       "tie_word_embeddings false is not supported with text_config"},
      {"gemma3_images",
       {{"text_config", "{\"tie_word_embeddings\": false}"}},
       "tie_word_embeddings false is not supported with text_config"},
      {"gemma3_images",
       {{"text_config", "{\"use_bidirectional_attention\": true}"}},
       "text_config: use_bidirectional_attention true is not supported"},
      {"gemma3_images",
       {{"text_config", "{\"is_causal\": false}"}},
       "text_config: is_causal false is not supported"},
      {"gemma3_images",
       {{"text_config", "{\"is_encoder_decoder\": true}"}},
       "text_config: is_encoder_decoder true is not supported"},
      {"gemma3_images",
       {{"text_config", "{\"pruned_heads\": {\"0\": [1]}}"}},
       "text_config: pruned_heads must be {}, got {\"0\": [1]}"},
      {"gemma3_images",
       {{"text_config", "{\"hidden_size\": 0}"}},
       "text_config: hidden_size must be an integer in [1, "},
      {"gemma",
       {{"hidden_act", "\"relu\""}},
       "hidden_act must be silu, swish, gelu_new or gelu_pytorch_tanh, got "},
      {"gemma",
       {{"hidden_activation", "\"silu\""}},
       "hidden_activation must be what hidden_act says, got \"silu\""},
      {"stablelm",
       {{"qk_layernorm", "true"}},
       "qk_layernorm true is not supported"},
      {"stablelm",
       {{"use_parallel_residual", "true"}},
       "use_parallel_residual true is not supported"},
      {"stablelm",
       {{"head_dim", "16"}},
       "hidden_size 32 must be num_attention_heads 4 times head_dim 16"},
      {"stablelm",
       {{"rope_parameters", R"({"rope_type": "yarn", "factor": 2})"}},
       "rope_type must be default or linear, got \"yarn\""},
      {"stablelm",
       {{"rope_parameters", R"({"partial_rotary_factor": 0.4})"}},
       "partial_rotary_factor 0.4 of a head of 8 must be an even number"},
      {"stablelm",
       {{"layer_norm_eps", "0"}},
       "layer_norm_eps must be a number in (0, 1], got 0"},
      {"opt",
       {{"_remove_final_layer_norm", "true"}},
       "_remove_final_layer_norm true is not supported"},
      {"opt",
       {{"layer_norm_elementwise_affine", "false"}},
       "layer_norm_elementwise_affine false is not supported"},
      {"opt",
       {{"word_embed_proj_dim", "0"}},
       "word_embed_proj_dim must be an integer in [1, "},
      {"opt",
       {{"num_attention_heads", "5"}},
       "hidden_size 32 must be a multiple of num_attention_heads 5"},
      {"opt", {{"ffn_dim", kAbsent}}, "ffn_dim is missing"},
      {"opt",
       {{"activation_function", "\"gelu_fast\""}},
       "activation_function must be silu, swish, gelu, gelu_new, "},
  });
}

TEST(FamilyConfigTest, EncoderDecodersThatAreNotComputedAreRefused) {
  ExpectAllRefused({
      {"bart",
       {{"architectures", "[\"BartForCausalLM\"]"}},
       "architectures must be [\"BartForConditionalGeneration\"], got "},
      {"bart",
       {{"is_encoder_decoder", "false"}},
       "is_encoder_decoder false is not supported"},
      {"bart",
       {{"normalize_before", "true"}},
       "normalize_before true is not supported"},
      {"marian",
       {{"add_final_layer_norm", "true"}},
       "add_final_layer_norm true is not supported"},
      {"marian",
       {{"share_encoder_decoder_embeddings", "false"}},
       "share_encoder_decoder_embeddings false is not supported"},
      {"marian",
       {{"decoder_vocab_size", "65"}},
       "decoder_vocab_size must be vocab_size, 64, got 65"},
      {"marian",
       {{"encoder_attention_heads", "2"}},
       "encoder_attention_heads must be decoder_attention_heads, 4, got 2"},
      {"marian",
       {{"decoder_attention_heads", "5"}, {"encoder_attention_heads", "5"}},
       "d_model 32 must be a multiple of decoder_attention_heads 5"},
      {"marian",
       {{"decoder_start_token_id", "64"}},
       "decoder_start_token_id must be an integer in [0, 63], got 64"},
      {"bart",
       {{"activation_function", "\"tanh\""}},
       "activation_function must be silu, swish, gelu, gelu_new, "
       "gelu_pytorch_tanh or relu, got \"tanh\""},
      {"bart", {{"encoder_layers", "0"}}, "encoder_layers must be an integer"},
      {"bart",
       {{"max_position_embeddings", "1"}},
       "max_position_embeddings must be an integer in [2, "},
      {"m2m_100",
       {{"normalize_before", "false"}},
       "normalize_before false is not supported"},
      {"m2m_100",
       {{"add_final_layer_norm", "false"}},
       "add_final_layer_norm false is not supported"},
      {"mbart",
       {{"normalize_before", "false"}},
       "normalize_before false is not supported"},
      {"mbart",
       {{"normalize_embedding", "false"}},
       "normalize_embedding false is not supported"},
      {"mbart",
       {{"bos_token_id", "64"}},
       "bos_token_id must be an integer in [0, 63], got 64"},
      {"m2m_100",
       {{"pad_token_id", "64"}},
       "pad_token_id must be an integer in [0, 63], got 64"},
      {"m2m_100",
       {{"d_model", "3"},
        {"encoder_attention_heads", "3"},
        {"decoder_attention_heads", "3"}},
       "d_model must be at least 4, got 3"},
      {"t5",
       {{"feed_forward_proj", "\"gated-relu\""}},
       "feed_forward_proj must be relu, gelu, gelu_new, silu, gated-gelu, "
       "gated-gelu_new or gated-silu, got \"gated-relu\""},
      {"t5",
       {{"dense_act_fn", "\"gelu\""}},
       "dense_act_fn must be relu with feed_forward_proj relu, got \"gelu\""},
      {"t5_gated",
       {{"dense_act_fn", "\"relu\""}},
       "dense_act_fn must be gelu_new with feed_forward_proj gated-gelu, got "},
      {"t5_gated",
       {{"is_gated_act", "false"}},
       "is_gated_act must be true with feed_forward_proj gated-gelu, got "},
      {"marian",
       {{"hidden_size", "16"}},
       "hidden_size must be d_model, 32, which it is another name of, got 16"},
      {"bart",
       {{"num_hidden_layers", "1"}},
       "num_hidden_layers must be encoder_layers, "},
      {"t5", {{"head_dim", "2"}}, "head_dim must be d_kv, "},
      {"t5",
       {{"relative_attention_num_buckets", "3"}},
       "relative_attention_num_buckets must be an integer in [4, "},
      {"t5",
       {{"relative_attention_max_distance", "8"}},
       "relative_attention_max_distance must be above half of "
       "relative_attention_num_buckets, 16, got 8"},
      {"t5",
       {{"relative_attention_max_distance", "65536"}, {"num_heads", "65"}},
       "relative_attention_max_distance must be at most 64527 with num_heads "
       "65, got 65536"},
  });
}

TEST(FamilyConfigTest, MissingFieldsOfEncoderDecodersHaveTheirDefaults) {
  TransformerConfig config =
      *ReadChanged("bart", {{"activation_function", kAbsent},
                            {"decoder_start_token_id", kAbsent},
                            {"scale_embedding", kAbsent},
                            {"is_encoder_decoder", kAbsent}});
  EXPECT_EQ(config.activation, Activation::kGelu);
  EXPECT_EQ(config.encoder->decoder_start_token_id, 2);
  EXPECT_FALSE(config.scales_embeddings);
  EXPECT_THAT(
      ReadChanged("marian", {{"decoder_start_token_id", kAbsent}}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("decoder_start_token_id is missing: its default, "
                         "58100, is not in the vocabulary of 64")));
  for (const auto& [family, eos] : {std::pair("bart", 2),
                                    {"marian", 0},
                                    {"m2m_100", 2},
                                    {"mbart", 2},
                                    {"pegasus", 1},
                                    {"t5", 1},
                                    {"mt5", 1},
                                    {"umt5", 1}}) {
    EXPECT_THAT(ReadChanged(family, {{"eos_token_id", kAbsent}})->eos_token_ids,
                ElementsAre(eos));
  }
  config = *ReadChanged("t5", {{"num_decoder_layers", kAbsent},
                               {"feed_forward_proj", kAbsent},
                               {"scale_decoder_outputs", kAbsent},
                               {"tie_word_embeddings", kAbsent}});
  EXPECT_EQ(config.num_layers(), 3);
  EXPECT_EQ(config.activation, Activation::kRelu);
  EXPECT_FALSE(config.has_gate);
  EXPECT_TRUE(config.scales_head);
  config = *ReadChanged("t5", {{"scale_decoder_outputs", kAbsent},
                               {"tie_word_embeddings", "false"}});
  EXPECT_FALSE(config.scales_head);
  config = *ReadChanged("m2m_100", {{"activation_function", kAbsent},
                                    {"decoder_start_token_id", kAbsent},
                                    {"pad_token_id", kAbsent},
                                    {"scale_embedding", kAbsent}});
  EXPECT_EQ(config.activation, Activation::kRelu);
  EXPECT_EQ(config.encoder->decoder_start_token_id, 2);
  EXPECT_EQ(config.position_offset, 2);
  EXPECT_EQ(config.token_without_position, 1);
  EXPECT_TRUE(config.scales_embeddings);
  EXPECT_FALSE(config.norms_sums || config.has_logits_bias);
  config = *ReadChanged("mbart", {{"activation_function", kAbsent},
                                  {"bos_token_id", kAbsent},
                                  {"decoder_start_token_id", kAbsent},
                                  {"scale_embedding", kAbsent}});
  EXPECT_EQ(config.activation, Activation::kGelu);
  EXPECT_EQ(config.encoder->decoder_start_token_id, 0);
  EXPECT_FALSE(config.scales_embeddings || config.norms_sums);
  EXPECT_TRUE(config.has_embedding_norm);
  // mT5 has a gate by default, and no scale whatever its file says.
  config = *ReadChanged("mt5", {{"feed_forward_proj", kAbsent},
                                {"dense_act_fn", kAbsent},
                                {"is_gated_act", kAbsent},
                                {"tie_word_embeddings", "true"}});
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_TRUE(config.has_gate);
  EXPECT_FALSE(config.scales_head);
  // UMT5 has a gate by default, too, and T5's scale.
  config = *ReadChanged("umt5", {{"feed_forward_proj", kAbsent},
                                 {"dense_act_fn", kAbsent},
                                 {"is_gated_act", kAbsent},
                                 {"scale_decoder_outputs", kAbsent},
                                 {"tie_word_embeddings", kAbsent}});
  EXPECT_TRUE(config.has_gate && config.scales_head);
  EXPECT_TRUE(config.has_layer_distances);
  // Norms are before the parts, whatever the file of a conversion says.
  EXPECT_FALSE(ReadChanged("pegasus", {{"normalize_before", "true"},
                                       {"add_final_layer_norm", "true"}})
                   ->norms_sums);
}

// As transformers treats them: nothing ends with a token that never comes.
TEST(FamilyConfigTest, EosIdsBeyondTheVocabularyNeverCome) {
  const auto ids = [](const std::string& value) {
    return ReadChanged("gpt2", {{"eos_token_id", value}})->eos_token_ids;
  };
  EXPECT_THAT(ids("50256"), IsEmpty());
  EXPECT_THAT(ids("64"), IsEmpty());
  EXPECT_THAT(ids("-1"), IsEmpty());
  EXPECT_THAT(ids("[63, 64, 5, 9223372036854775807]"), ElementsAre(63, 5));
}

// Python's json writes them.
TEST(FamilyConfigTest, NumbersThatAreNotFiniteAreReadWhereNothingNeedsThem) {
  const ScratchDirectory directory;
  const std::string text =
      *ReadFile(FamilyPath("gpt2") + "/config.json", 1 << 20);
  const auto read = [&](const std::string& member) {
    directory.Write("config.json", "{" + member + ", " + text.substr(1));
    return ReadTransformerConfig(directory.path());
  };
  EXPECT_OK(read("\"time_step_limit\": [0.0, Infinity], \"x\": NaN"));
  directory.Write("generation_config.json", "{\"y\": -Infinity}");
  EXPECT_OK(read("\"x\": -Infinity"));
  EXPECT_THAT(ReadChanged("gpt2", {{"layer_norm_epsilon", "\"NaN\""}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("layer_norm_epsilon must be a number in (0, "
                                 "1], got \"NaN\"")));
}

// By transformers' attribute_map: either may be there, or both of one value.
TEST(FamilyConfigTest, SizesHaveTheirOtherNames) {
  using Names = std::vector<std::pair<std::string, std::string>>;
  const std::pair<std::string, Names> families[] = {
      {"gpt2",
       {{"n_embd", "hidden_size"},
        {"n_layer", "num_hidden_layers"},
        {"n_head", "num_attention_heads"},
        {"n_positions", "max_position_embeddings"}}},
      {"bart",
       {{"d_model", "hidden_size"},
        {"encoder_layers", "num_hidden_layers"},
        {"encoder_attention_heads", "num_attention_heads"}}},
      {"marian",
       {{"d_model", "hidden_size"},
        {"encoder_layers", "num_hidden_layers"},
        {"encoder_attention_heads", "num_attention_heads"}}},
      {"m2m_100",
       {{"d_model", "hidden_size"},
        {"encoder_layers", "num_hidden_layers"},
        {"encoder_attention_heads", "num_attention_heads"}}},
      {"mbart",
       {{"d_model", "hidden_size"},
        {"encoder_layers", "num_hidden_layers"},
        {"encoder_attention_heads", "num_attention_heads"}}},
      {"pegasus",
       {{"d_model", "hidden_size"},
        {"encoder_layers", "num_hidden_layers"},
        {"encoder_attention_heads", "num_attention_heads"}}},
      {"t5",
       {{"d_model", "hidden_size"},
        {"num_layers", "num_hidden_layers"},
        {"num_heads", "num_attention_heads"},
        {"d_kv", "head_dim"}}},
      {"mt5",
       {{"d_model", "hidden_size"},
        {"num_layers", "num_hidden_layers"},
        {"num_heads", "num_attention_heads"},
        {"d_kv", "head_dim"}}}};
  for (const auto& [family, names] : families) {
    const json::value json =
        *ParseJson(*ReadFile(FamilyPath(family) + "/config.json", 1 << 20));
    const TransformerConfig config = *ReadChanged(family, {});
    for (const bool has_both : {false, true}) {
      Changes changes;
      for (const auto& [name, other] : names) {
        changes.push_back({other, WriteJson(json.at(name))});
        if (!has_both) changes.push_back({name, kAbsent});
      }
      ASSERT_OK_AND_ASSIGN(const TransformerConfig same,
                           ReadChanged(family, changes));
      EXPECT_EQ(same.hidden_size, config.hidden_size) << family;
      EXPECT_EQ(same.num_layers(), config.num_layers()) << family;
      EXPECT_EQ(same.num_heads, config.num_heads) << family;
      EXPECT_EQ(same.head_dim, config.head_dim) << family;
      EXPECT_EQ(same.max_context, config.max_context) << family;
    }
  }
}

TEST(FamilyConfigTest, NullIsNoEosId) {
  for (const char* family : {"bart", "marian", "t5", "qwen3"}) {
    EXPECT_THAT(ReadChanged(family, {{"eos_token_id", "null"}})->eos_token_ids,
                IsEmpty())
        << family;
  }
}

TEST(FamilyConfigTest, ASourceIsAsLongAsTheModelAllows) {
  TransformerConfig config = *ReadChanged("t5", {});
  EXPECT_EQ(config.encoder->max_tokens, 32768);
  EXPECT_EQ(config.max_context, 32768);
  config = *ReadChanged("marian", {{"max_position_embeddings", "4096"}});
  EXPECT_EQ(config.encoder->max_tokens, 4096);
  EXPECT_EQ(config.max_context, 4096);
  config = *ReadChanged("bart", {});
  EXPECT_EQ(config.encoder->max_tokens, config.max_context);
}

TEST(FamilyConfigTest, WindowsThatAreNotMeantAreRefused) {
  ExpectAllRefused({
      {"mistral",
       {{"sliding_window", "0"}},
       "sliding_window must be an integer in [1, "},
      {"mistral",
       {{"sliding_window", "\"4096\""}},
       "sliding_window must be an integer in [1, "},
      {"mistral",
       {{"layer_types",
         R"(["full_attention", "sliding_attention", "sliding_attention"])"}},
       "layer_types must all be sliding_attention, got [\"full_attention\""},
      {"mistral_full",
       {{"layer_types", R"(["full_attention", "sliding_attention"])"}},
       "layer 1 is sliding_attention and no sliding_window is in use, got "
       "null"},
      {"qwen2",
       {{"layer_types", R"(["full_attention", "chunked_attention"])"}},
       "layer_types must be sliding_attention or full_attention, got "
       "\"chunked_attention\""},
      {"qwen2",
       {{"layer_types", R"(["full_attention"])"}},
       "layer_types must be a list of 2 names, got [\"full_attention\"]"},
      {"qwen2",
       {{"layer_types", "\"full_attention\""}},
       "layer_types must be a list of 2 names, got \"full_attention\""},
      {"qwen2",
       {{"layer_types", R"(["full_attention", 3])"}},
       "layer_types must be sliding_attention or full_attention, got 3"},
      {"qwen2",
       {{"layer_types", R"(["full_attention", "sliding_attention"])"},
        {"sliding_window", "7"}},
       "layer 1 is sliding_attention and no sliding_window is in use, got 7"},
      {"qwen2_window",
       {{"use_sliding_window", "\"no\""}},
       "use_sliding_window must be true or false, got \"no\""},
      {"qwen2_window",
       {{"sliding_window", "-1"}},
       "sliding_window must be an integer in [1, "},
      {"qwen2_window",
       {{"max_window_layers", "-1"}},
       "max_window_layers must be an integer in [0, 4096], got -1"},
      {"qwen3_window",
       {{"layer_types", "[]"}},
       "layer_types must be a list of 3 names, got []"},
      {"qwen3_window",
       {{"use_sliding_window", "false"}},
       "layer 0 is sliding_attention and no sliding_window is in use, got 9"},
      {"gemma2",
       {{"sliding_window", "null"}},
       "layer 0 is sliding_attention and no sliding_window is in use, got "
       "null"},
      {"gemma2",
       {{"sliding_window", "4.5"}},
       "sliding_window must be an integer in [1, "},
      {"gemma3",
       {{"sliding_window", "0"}},
       "sliding_window must be an integer in [1, "},
      {"gemma3",
       {{"layer_types", kAbsent}, {"sliding_window_pattern", "0"}},
       "sliding_window_pattern must be an integer in [1, 4096], got 0"},
      {"phi3",
       {{"sliding_window", "true"}},
       "sliding_window must be an integer in [1, "},
  });
}

TEST(FamilyConfigTest, RotaryPositionsThatAreNotComputedAreRefused) {
  ExpectAllRefused({
      {"mistral",
       {{"rope_parameters", R"({"rope_type": "axial"})"}},
       "rope_type must be default, linear, dynamic, llama3, yarn or longrope, "
       "got \"axial\""},
      {"qwen2",
       {{"rope_scaling", R"({"type": "mrope", "mrope_section": [1, 1, 2]})"}},
       "rope_type must be default, linear, dynamic, llama3, yarn or longrope, "
       "got \"mrope\""},
      {"qwen3",
       {{"partial_rotary_factor", "0.5"}},
       "partial_rotary_factor must be 1, got 0.5"},
      {"llama_yarn", {{"rope_parameters", "[]"}}, "rope_parameters must be an"},
      {"llama_yarn",
       {{"rope_parameters", R"({"rope_type": "yarn"})"}},
       "factor is missing"},
      {"llama_llama3",
       {{"rope_parameters", R"({"rope_type": "llama3", "factor": 8})"}},
       "low_freq_factor is missing"},
      {"llama_linear",
       {{"rope_parameters", R"({"rope_type": "linear", "factor": 0})"}},
       "factor must be a number in (0, "},
      {"gemma3",
       {{"rope_parameters", R"({"rope_type": "linear", "factor": 8})"}},
       "rope_parameters must have an object full_attention, got {"},
      {"gemma3",
       {{"rope_parameters", R"({"full_attention": {"rope_type": "default"}})"}},
       "rope_parameters must have an object sliding_attention, got {"},
      {"gemma3",
       {{"rope_scaling", R"({"rope_type": "yarn", "factor": 8})"}},
       "rope_type must be default or linear, got \"yarn\""},
      {"gemma3",
       {{"rope_parameters", kAbsent}, {"rope_local_base_freq", "0"}},
       "rope_local_base_freq must be a number in (0, "},
      {"gemma3", {{"rope_scaling", "8"}}, "rope_scaling must be an object"},
      {"phi3",
       {{"rope_scaling", R"({"type": "linear", "factor": 2})"}},
       "rope_type must be default or longrope, got \"linear\""},
      {"phi3",
       {{"rope_scaling", R"({"type": "su"})"}},
       "short_factor must be a list of 4 numbers, got nothing"},
      {"phi3_longrope",
       {{"original_max_position_embeddings", "0"}},
       "original_max_position_embeddings must be an integer in [1, "},
      {"phi3_longrope",
       {{"rope_parameters",
         R"({"rope_type": "longrope", "partial_rotary_factor": 0.1})"}},
       "partial_rotary_factor 0.1 of a head of 16 must be an even number of "
       "dimensions"},
      {"phi3_longrope",
       {{"rope_parameters", R"({"rope_type": "longrope",
          "partial_rotary_factor": 0.25, "short_factor": [1, 2],
          "long_factor": [1, -2]})"}},
       "long_factor must hold numbers in (0, 1e+06], got -2"},
  });
}

std::vector<int> WindowsOf(const TransformerConfig& config) {
  std::vector<int> windows;
  for (const LayerConfig& layer : config.layers)
    windows.push_back(layer.window);
  return windows;
}

TEST(FamilyConfigTest, MissingFieldsHaveTheDefaultsOfTransformers) {
  TransformerConfig config =
      *ReadChanged("mistral", {{"sliding_window", kAbsent}});
  EXPECT_THAT(WindowsOf(config), ElementsAre(4096, 4096, 4096));
  config = *ReadChanged("mistral", {{"sliding_window", "null"}});
  EXPECT_THAT(WindowsOf(config), Each(0));
  config = *ReadChanged("qwen2_window", {{"layer_types", kAbsent},
                                         {"max_window_layers", "2"},
                                         {"sliding_window", kAbsent}});
  EXPECT_THAT(WindowsOf(config), ElementsAre(0, 0, 4096));
  config = *ReadChanged("qwen2_window", {{"layer_types", kAbsent},
                                         {"max_window_layers", kAbsent}});
  EXPECT_THAT(WindowsOf(config), Each(0));
  config = *ReadChanged("qwen3", {{"head_dim", kAbsent}});
  EXPECT_EQ(config.head_dim, 128);
  config = *ReadChanged("gemma2", {{"layer_types", kAbsent},
                                   {"attn_logit_softcapping", kAbsent},
                                   {"final_logit_softcapping", kAbsent},
                                   {"query_pre_attn_scalar", kAbsent},
                                   {"tie_word_embeddings", kAbsent},
                                   {"hidden_activation", kAbsent},
                                   {"head_dim", kAbsent}});
  EXPECT_THAT(WindowsOf(config), ElementsAre(6, 0, 6, 0));
  EXPECT_EQ(config.attention_soft_cap, 50);
  EXPECT_EQ(config.logit_soft_cap, 30);
  EXPECT_EQ(config.query_pre_attn_scalar, 256);
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_TRUE(config.tie_word_embeddings);
  config = *ReadChanged("gemma3", {{"layer_types", kAbsent},
                                   {"rope_parameters", kAbsent},
                                   {"num_hidden_layers", "7"}});
  EXPECT_THAT(WindowsOf(config), ElementsAre(5, 5, 5, 5, 5, 0, 5));
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.local_rope->theta, 1e4);
  EXPECT_EQ(config.attention_soft_cap, 0);
  config = *ReadChanged("gpt2", {{"layer_norm_epsilon", kAbsent},
                                 {"activation_function", kAbsent}});
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.layers[0].intermediate_size, 120);
  config = *ReadChanged("phi3", {{"rms_norm_eps", kAbsent}});
  EXPECT_EQ(config.norm_eps, 1e-5);
  // Its "gelu" has always stood for the tanh approximation.
  for (const char* act : {kAbsent, "\"gelu\"", "\"gelu_pytorch_tanh\""}) {
    config = *ReadChanged("gemma", {{"hidden_act", act},
                                    {"head_dim", kAbsent},
                                    {"eos_token_id", kAbsent},
                                    {"tie_word_embeddings", kAbsent}});
    EXPECT_EQ(config.activation, Activation::kGeluTanh);
  }
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(1));
  config = *ReadChanged("stablelm", {{"layer_norm_eps", kAbsent},
                                     {"eos_token_id", kAbsent},
                                     {"rope_parameters", kAbsent},
                                     {"use_qkv_bias", kAbsent}});
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.rope.RotaryDim(config.head_dim), 2);
  EXPECT_FALSE(config.has_qkv_bias);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(0));
  config = *ReadChanged("opt_projected", {{"do_layer_norm_before", kAbsent},
                                          {"word_embed_proj_dim", kAbsent},
                                          {"activation_function", kAbsent},
                                          {"eos_token_id", kAbsent},
                                          {"enable_bias", "false"}});
  EXPECT_FALSE(config.norms_sums);
  EXPECT_FALSE(config.projects_embeddings());
  EXPECT_EQ(config.activation, Activation::kRelu);
  EXPECT_FALSE(config.has_qkv_bias || config.has_output_bias ||
               config.has_mlp_bias);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(2));
}

// As Gemma 3's first checkpoints write it, before rope_parameters.
TEST(FamilyConfigTest, GemmasOlderFieldsOfRotaryPositionsAreRead) {
  const TransformerConfig config = *ReadChanged(
      "gemma3", {{"rope_parameters", kAbsent},
                 {"rope_theta", "5000"},
                 {"rope_local_base_freq", "70"},
                 {"rope_scaling", R"({"rope_type": "linear", "factor": 8})"}});
  EXPECT_EQ(config.rope.theta, 5000);
  EXPECT_EQ(config.rope.type, RopeType::kLinear);
  EXPECT_EQ(config.rope.factor, 8);
  EXPECT_EQ(config.local_rope->theta, 70);
  EXPECT_EQ(config.local_rope->type, RopeType::kDefault);
}

TEST(FamilyConfigTest, LongRopeEndsTheContextWhereItsFactorsChange) {
  EXPECT_EQ(ReadChanged("phi3_longrope", {})->max_context, 48);
  EXPECT_EQ(ReadChanged("phi3_longrope",
                        {{"original_max_position_embeddings", kAbsent}})
                ->max_context,
            192);
}

}  // namespace
}  // namespace espalier

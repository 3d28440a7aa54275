#include "model/families/bart_fields.h"

#include <string_view>

#include "base/status.h"
#include "model/config_fields.h"
#include "model/family_fields.h"

namespace espalier {
namespace {

constexpr std::string_view kEmbeddingAliases[] = {"encoder.embed_tokens",
                                                  "decoder.embed_tokens"};

constexpr TensorNames kEncoderNames = {
    .positions = "encoder.embed_positions",
    .embedding_norm = "encoder.layernorm_embedding",
    .layers = "encoder.layers.",
    .attention_norm = "self_attn_layer_norm",
    .output = "self_attn.out_proj",
    .mlp_norm = "final_layer_norm",
    .up = "fc1",
    .down = "fc2"};

constexpr TensorNames kDecoderNames = {
    .embedding = "shared",
    .embedding_aliases = kEmbeddingAliases,
    .positions = "decoder.embed_positions",
    .embedding_norm = "decoder.layernorm_embedding",
    .logits_bias = "final_logits_bias",
    .layers = "decoder.layers.",
    .attention_norm = "self_attn_layer_norm",
    .output = "self_attn.out_proj",
    .cross_norm = "encoder_attn_layer_norm",
    .cross_q = "encoder_attn.q_proj",
    .cross_k = "encoder_attn.k_proj",
    .cross_v = "encoder_attn.v_proj",
    .cross_output = "encoder_attn.out_proj",
    .mlp_norm = "final_layer_norm",
    .up = "fc1",
    .down = "fc2"};

absl::Status ReadBartHeads(const json::object& json,
                           const BartDefaults& defaults,
                           TransformerConfig* config) {
  ASSIGN_OR_RETURN(config->num_heads,
                   ReadInt(json, "decoder_attention_heads", 1, kMaxHeads,
                           defaults.num_heads));
  ASSIGN_OR_RETURN(
      const int num_encoder_heads,
      ReadAliasedInt(json, "encoder_attention_heads", "num_attention_heads", 1,
                     kMaxHeads, defaults.num_heads));
  if (num_encoder_heads != config->num_heads) {
    return InvalidArgument(
        "encoder_attention_heads must be decoder_attention_heads, ",
        config->num_heads, ", got ", num_encoder_heads);
  }
  return SetHeadDim(config, "d_model", "decoder_attention_heads");
}

absl::Status ReadBartSizes(const json::object& json,
                           const BartDefaults& defaults,
                           TransformerConfig* config) {
  ASSIGN_OR_RETURN(config->vocab_size,
                   ReadInt(json, "vocab_size", 1, kMaxVocabulary));
  ASSIGN_OR_RETURN(config->hidden_size,
                   ReadAliasedInt(json, "d_model", "hidden_size", 1, kMaxWidth,
                                  defaults.hidden_size));
  ASSIGN_OR_RETURN(
      const int num_layers,
      ReadInt(json, "decoder_layers", 1, kMaxLayers, defaults.num_layers));
  ASSIGN_OR_RETURN(const int intermediate_size,
                   ReadInt(json, "decoder_ffn_dim", 1, kMaxWidth,
                           defaults.intermediate_size));
  config->layers.assign(num_layers, {.has_cross_attention = true,
                                     .intermediate_size = intermediate_size});
  ASSIGN_OR_RETURN(config->max_context, ReadInt(json, "max_position_embeddings",
                                                2, kMaxContext, 1024));
  EncoderConfig& encoder = config->encoder.emplace();
  encoder.names = kEncoderNames;
  encoder.max_tokens = config->max_context;
  ASSIGN_OR_RETURN(const int num_encoder_layers,
                   ReadAliasedInt(json, "encoder_layers", "num_hidden_layers",
                                  1, kMaxLayers, defaults.num_layers));
  ASSIGN_OR_RETURN(const int encoder_intermediate_size,
                   ReadInt(json, "encoder_ffn_dim", 1, kMaxWidth,
                           defaults.intermediate_size));
  encoder.layers.assign(num_encoder_layers,
                        {.intermediate_size = encoder_intermediate_size});
  return ReadBartHeads(json, defaults, config);
}

}  // namespace

absl::Status ReadNormsOfSums(const json::object& json,
                             TransformerConfig* config) {
  for (const char* key : {"normalize_before", "add_final_layer_norm"}) {
    ASSIGN_OR_RETURN(const bool is_set, ReadBool(json, key, false));
    if (is_set) return InvalidArgument(key, " true is not supported");
  }
  config->norms_sums = true;
  return absl::OkStatus();
}

absl::Status ReadNormsBefore(const json::object& json,
                             TransformerConfig* config) {
  for (const char* key : {"normalize_before", "add_final_layer_norm"}) {
    ASSIGN_OR_RETURN(const bool is_set, ReadBool(json, key, true));
    if (!is_set) return InvalidArgument(key, " false is not supported");
  }
  config->names.final_norm = "decoder.layer_norm";
  config->encoder->names.final_norm = "encoder.layer_norm";
  return absl::OkStatus();
}

absl::Status ReadBartFields(const json::object& json,
                            const BartDefaults& defaults,
                            TransformerConfig* config) {
  RETURN_IF_ERROR(ReadBartSizes(json, defaults, config));
  config->names = kDecoderNames;
  config->norm = NormKind::kLayer;
  config->norm_eps = 1e-5;
  config->has_qkv_bias = true;
  config->has_output_bias = true;
  config->has_mlp_bias = true;
  config->has_gate = false;
  config->has_logits_bias = true;
  ASSIGN_OR_RETURN(
      config->activation,
      ReadAnyActivation(json, "activation_function", defaults.activation));
  ASSIGN_OR_RETURN(
      config->scales_embeddings,
      ReadBool(json, "scale_embedding", defaults.scales_embeddings));
  ASSIGN_OR_RETURN(config->tie_word_embeddings,
                   ReadBool(json, "tie_word_embeddings", true));
  return absl::OkStatus();
}

}  // namespace espalier

// T5: biases of scores by distance in place of positions, RMSNorm, scores that
// are not divided. T5 1.1 and Flan-T5 have a gate, and a head of their own;
// so have mT5 and mT0, which are T5 1.1 by another name. UMT5 has biases of
// each layer.
#include <limits>
#include <string_view>

#include "base/status.h"
#include "model/config_fields.h"
#include "model/family_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

constexpr std::string_view kT5EmbeddingAliases[] = {"encoder.embed_tokens",
                                                    "decoder.embed_tokens"};
// Distances have no end, and keys and values do.
constexpr int kMaxT5Context = 1 << 15;
constexpr int kMaxBuckets = 1 << 16;
constexpr int kMaxDistance = 1 << 16;
// A bias for each head and distance: 32 MB for the encoder, and for the
// decoder. T5 11B has 128 heads and distances
// up to 128.
constexpr int64_t kMaxBiases = 1 << 22;

constexpr TensorNames kT5EncoderNames = {
    .distance_biases =
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    .final_norm = "encoder.final_layer_norm",
    .layers = "encoder.block.",
    .attention_norm = "layer.0.layer_norm",
    .q = "layer.0.SelfAttention.q",
    .k = "layer.0.SelfAttention.k",
    .v = "layer.0.SelfAttention.v",
    .output = "layer.0.SelfAttention.o",
    .mlp_norm = "layer.1.layer_norm",
    .gate = "layer.1.DenseReluDense.wi_0",
    .up = "layer.1.DenseReluDense.wi",
    .down = "layer.1.DenseReluDense.wo"};

constexpr TensorNames kT5DecoderNames = {
    .base = "",
    .embedding = "shared",
    .embedding_aliases = kT5EmbeddingAliases,
    .distance_biases =
        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    .final_norm = "decoder.final_layer_norm",
    .layers = "decoder.block.",
    .attention_norm = "layer.0.layer_norm",
    .q = "layer.0.SelfAttention.q",
    .k = "layer.0.SelfAttention.k",
    .v = "layer.0.SelfAttention.v",
    .output = "layer.0.SelfAttention.o",
    .cross_norm = "layer.1.layer_norm",
    .cross_q = "layer.1.EncDecAttention.q",
    .cross_k = "layer.1.EncDecAttention.k",
    .cross_v = "layer.1.EncDecAttention.v",
    .cross_output = "layer.1.EncDecAttention.o",
    .mlp_norm = "layer.2.layer_norm",
    .gate = "layer.2.DenseReluDense.wi_0",
    .up = "layer.2.DenseReluDense.wi",
    .down = "layer.2.DenseReluDense.wo"};

// A configuration class's values of fields that are missing.
struct T5Defaults {
  int d_ff;
  int num_layers;
  int num_heads;
  std::string_view feed_forward_proj;
};

absl::Status ReadT5Sizes(const json::object& json, const T5Defaults& defaults,
                         TransformerConfig* config) {
  ASSIGN_OR_RETURN(config->vocab_size,
                   ReadInt(json, "vocab_size", 1, kMaxVocabulary));
  ASSIGN_OR_RETURN(
      config->hidden_size,
      ReadAliasedInt(json, "d_model", "hidden_size", 1, kMaxWidth, 512));
  ASSIGN_OR_RETURN(const int intermediate_size,
                   ReadInt(json, "d_ff", 1, kMaxWidth, defaults.d_ff));
  ASSIGN_OR_RETURN(config->num_heads,
                   ReadAliasedInt(json, "num_heads", "num_attention_heads", 1,
                                  kMaxHeads, defaults.num_heads));
  ASSIGN_OR_RETURN(config->head_dim, ReadAliasedInt(json, "d_kv", "head_dim", 1,
                                                    kMaxHeadDim, 64));
  config->num_kv_heads = config->num_heads;
  config->max_context = kMaxT5Context;
  EncoderConfig& encoder = config->encoder.emplace();
  encoder.names = kT5EncoderNames;
  encoder.max_tokens = kMaxT5Context;
  ASSIGN_OR_RETURN(const int num_encoder_layers,
                   ReadAliasedInt(json, "num_layers", "num_hidden_layers", 1,
                                  kMaxLayers, defaults.num_layers));
  ASSIGN_OR_RETURN(
      const int num_layers,
      ReadInt(json, "num_decoder_layers", 1, kMaxLayers, num_encoder_layers));
  encoder.layers.assign(num_encoder_layers,
                        {.intermediate_size = intermediate_size});
  config->layers.assign(num_layers, {.has_cross_attention = true,
                                     .intermediate_size = intermediate_size});
  return absl::OkStatus();
}

absl::Status ReadDistances(const json::object& json,
                           TransformerConfig* config) {
  config->positions = PositionKind::kDistances;
  ASSIGN_OR_RETURN(
      config->num_distance_buckets,
      ReadInt(json, "relative_attention_num_buckets", 4, kMaxBuckets, 32));
  ASSIGN_OR_RETURN(
      config->max_distance,
      ReadInt(json, "relative_attention_max_distance", 2, kMaxDistance, 128));
  if (int64_t{config->num_heads} * config->max_distance > kMaxBiases) {
    return InvalidArgument("relative_attention_max_distance must be at most ",
                           kMaxBiases / config->num_heads, " with num_heads ",
                           config->num_heads, ", got ", config->max_distance);
  }
  // Buckets of distance ranges begin after those of single distances.
  if (config->max_distance > config->num_distance_buckets / 2) {
    return absl::OkStatus();
  }
  return InvalidArgument("relative_attention_max_distance must be above half ",
                         "of relative_attention_num_buckets, ",
                         config->num_distance_buckets, ", got ",
                         config->max_distance);
}

struct FeedForwardForm {
  std::string_view name;
  Activation activation;
  bool has_gate;
};

// transformers derives two fields from the form, and lets the file override
// them; then it is another form.
absl::Status CheckDerived(const json::object& json,
                          const FeedForwardForm& form) {
  std::string_view activation = form.name;
  if (form.has_gate)
    activation.remove_prefix(std::string_view("gated-").size());
  if (form.name == "gated-gelu") activation = "gelu_new";
  const json::value* const given = FindField(json, "dense_act_fn");
  if (given != nullptr && *given != json::string_view(activation)) {
    return InvalidArgument("dense_act_fn must be ", activation,
                           " with feed_forward_proj ", form.name, ", got ",
                           Shown(given));
  }
  ASSIGN_OR_RETURN(const bool is_gated,
                   ReadBool(json, "is_gated_act", form.has_gate));
  if (is_gated == form.has_gate) return absl::OkStatus();
  return InvalidArgument("is_gated_act must be ",
                         form.has_gate ? "true" : "false",
                         " with feed_forward_proj ", form.name, ", got ",
                         is_gated ? "true" : "false");
}

absl::Status ReadFeedForward(const json::object& json,
                             std::string_view fallback,
                             TransformerConfig* config) {
  using Form = FeedForwardForm;
  // gated-gelu is gelu_new, as transformers has it.
  constexpr Form kForms[] = {{"relu", Activation::kRelu, false},
                             {"gelu", Activation::kGelu, false},
                             {"gelu_new", Activation::kGeluTanh, false},
                             {"silu", Activation::kSilu, false},
                             {"gated-gelu", Activation::kGeluTanh, true},
                             {"gated-gelu_new", Activation::kGeluTanh, true},
                             {"gated-silu", Activation::kSilu, true}};
  const json::value* const value = FindField(json, "feed_forward_proj");
  for (const Form& form : kForms) {
    const bool is_it = value == nullptr
                           ? form.name == fallback
                           : *value == json::string_view(form.name);
    if (!is_it) continue;
    config->activation = form.activation;
    config->has_gate = form.has_gate;
    if (form.has_gate) {
      config->names.up = "layer.2.DenseReluDense.wi_1";
      config->encoder->names.up = "layer.1.DenseReluDense.wi_1";
    }
    return CheckDerived(json, form);
  }
  return InvalidArgument(
      "feed_forward_proj must be relu, gelu, gelu_new, silu, gated-gelu, ",
      "gated-gelu_new or gated-silu, got ", Shown(value));
}

absl::Status ReadT5Fields(const json::object& json, const T5Defaults& defaults,
                          TransformerConfig* config) {
  RETURN_IF_ERROR(ReadT5Sizes(json, defaults, config));
  config->names = kT5DecoderNames;
  RETURN_IF_ERROR(ReadDistances(json, config));
  RETURN_IF_ERROR(ReadFeedForward(json, defaults.feed_forward_proj, config));
  config->query_pre_attn_scalar = 1;
  ASSIGN_OR_RETURN(config->norm_eps,
                   ReadNumber(json, "layer_norm_epsilon", 0, 1, 1e-6));
  // As in transformers, the head is tied if the checkpoint has none, whatever
  // tie_word_embeddings says.
  config->may_lack_head = true;
  config->encoder->decoder_start_token_id = 0;
  config->eos_token_ids = {1};
  return absl::OkStatus();
}

absl::Status ReadHeadScale(const json::object& json,
                           TransformerConfig* config) {
  // Default of scale_decoder_outputs.
  ASSIGN_OR_RETURN(const bool is_tied,
                   ReadBool(json, "tie_word_embeddings", true));
  ASSIGN_OR_RETURN(config->scales_head,
                   ReadBool(json, "scale_decoder_outputs", is_tied));
  return absl::OkStatus();
}

absl::Status ReadT5(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(ReadT5Fields(json, {2048, 6, 8, "relu"}, config));
  return ReadHeadScale(json, config);
}

absl::Status ReadMt5(const json::object& json, TransformerConfig* config) {
  return ReadT5Fields(json, {1024, 8, 6, "gated-gelu"}, config);
}

absl::Status ReadUmt5(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(ReadT5Fields(json, {1024, 8, 6, "gated-gelu"}, config));
  RETURN_IF_ERROR(ReadHeadScale(json, config));
  constexpr std::string_view kLayerBiases =
      "layer.0.SelfAttention.relative_attention_bias";
  config->has_layer_distances = true;
  config->names.distance_biases = kLayerBiases;
  config->encoder->names.distance_biases = kLayerBiases;
  return absl::OkStatus();
}

}  // namespace

constexpr ModelFamily kT5Family = {.model_type = "t5",
                                   .name = "T5",
                                   .architecture = "T5ForConditionalGeneration",
                                   .read = ReadT5,
                                   .is_encoder_decoder = true};
constexpr ModelFamily kMt5Family = {
    .model_type = "mt5",
    .name = "mT5",
    .architecture = "MT5ForConditionalGeneration",
    .read = ReadMt5,
    .is_encoder_decoder = true};
constexpr ModelFamily kUmt5Family = {
    .model_type = "umt5",
    .name = "UMT5",
    .architecture = "UMT5ForConditionalGeneration",
    .read = ReadUmt5,
    .is_encoder_decoder = true};

}  // namespace espalier

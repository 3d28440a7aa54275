#include "model/family_fields.h"

#include <string>

#include "base/status.h"
#include "model/config_fields.h"

namespace espalier {
namespace {

constexpr double kMaxSoftCap = 1e6;

absl::Status ReadHeads(const json::object& json,
                       const DecoderDefaults& defaults,
                       TransformerConfig* config) {
  ASSIGN_OR_RETURN(config->num_heads,
                   ReadInt(json, "num_attention_heads", 1, kMaxHeads));
  const bool is_missing = !json.contains("num_key_value_heads");
  const int num_kv_heads = defaults.num_kv_heads > 0 && is_missing
                               ? defaults.num_kv_heads
                               : config->num_heads;
  ASSIGN_OR_RETURN(config->num_kv_heads, ReadInt(json, "num_key_value_heads", 1,
                                                 kMaxHeads, num_kv_heads));
  if (config->num_heads % config->num_kv_heads != 0) {
    return InvalidArgument("num_attention_heads ", config->num_heads,
                           " must be a multiple of num_key_value_heads ",
                           config->num_kv_heads);
  }
  const int head_dim = defaults.head_dim > 0
                           ? defaults.head_dim
                           : config->hidden_size / config->num_heads;
  ASSIGN_OR_RETURN(config->head_dim,
                   ReadInt(json, "head_dim", 1, kMaxHeadDim, head_dim));
  if (config->head_dim < 2 || config->head_dim % 2 != 0) {
    return InvalidArgument("head_dim must be even and at least 2, got ",
                           config->head_dim);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> IsLocal(const json::value& type) {
  if (type == "sliding_attention") return true;
  if (type == "full_attention") return false;
  return InvalidArgument(
      "layer_types must be sliding_attention or full_attention, got ",
      Shown(&type));
}

}  // namespace

absl::Status ReadDecoder(const json::object& json,
                         const DecoderDefaults& defaults,
                         TransformerConfig* config) {
  const json::value* act = FindField(json, defaults.activation_field);
  if (defaults.gelu_is_tanh && act != nullptr && *act == "gelu") {
    config->activation = Activation::kGeluTanh;
  } else {
    ASSIGN_OR_RETURN(
        config->activation,
        ReadActivation(json, defaults.activation_field, defaults.activation));
  }
  ASSIGN_OR_RETURN(config->vocab_size,
                   ReadInt(json, "vocab_size", 1, kMaxVocabulary));
  ASSIGN_OR_RETURN(config->hidden_size,
                   ReadInt(json, "hidden_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(const int intermediate_size,
                   ReadInt(json, "intermediate_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(const int num_layers,
                   ReadInt(json, "num_hidden_layers", 1, kMaxLayers));
  config->layers.assign(num_layers, {.intermediate_size = intermediate_size});
  ASSIGN_OR_RETURN(config->max_context,
                   ReadInt(json, "max_position_embeddings", 1, kMaxContext));
  RETURN_IF_ERROR(ReadHeads(json, defaults, config));
  ASSIGN_OR_RETURN(config->norm_eps, ReadNumber(json, defaults.norm_eps_field,
                                                0, 1, defaults.norm_eps));
  ASSIGN_OR_RETURN(
      config->tie_word_embeddings,
      ReadBool(json, "tie_word_embeddings", defaults.tie_word_embeddings));
  return absl::OkStatus();
}

absl::Status SetHeadDim(TransformerConfig* config, std::string_view size_field,
                        std::string_view heads_field) {
  if (config->hidden_size % config->num_heads != 0) {
    return InvalidArgument(size_field, " ", config->hidden_size,
                           " must be a multiple of ", heads_field, " ",
                           config->num_heads);
  }
  config->num_kv_heads = config->num_heads;
  config->head_dim = config->hidden_size / config->num_heads;
  if (config->head_dim <= kMaxHeadDim) return absl::OkStatus();
  return InvalidArgument(size_field, " / ", heads_field, " must be at most ",
                         kMaxHeadDim, ", got ", config->head_dim);
}

absl::StatusOr<Activation> ReadActivation(const json::object& json,
                                          std::string_view key,
                                          Activation fallback) {
  const json::value* value = FindField(json, key);
  if (value == nullptr) return fallback;
  if (*value == "silu" || *value == "swish") return Activation::kSilu;
  if (*value == "gelu_new" || *value == "gelu_pytorch_tanh") {
    return Activation::kGeluTanh;
  }
  return InvalidArgument(key, " must be silu, swish, gelu_new or ",
                         "gelu_pytorch_tanh, ", "got ", Shown(value));
}

absl::StatusOr<Activation> ReadAnyActivation(const json::object& json,
                                             std::string_view key,
                                             Activation fallback) {
  const json::value* value = FindField(json, key);
  if (value == nullptr) return fallback;
  if (*value == "silu" || *value == "swish") return Activation::kSilu;
  if (*value == "gelu") return Activation::kGelu;
  if (*value == "relu") return Activation::kRelu;
  if (*value == "gelu_new" || *value == "gelu_pytorch_tanh") {
    return Activation::kGeluTanh;
  }
  return InvalidArgument(key, " must be silu, swish, gelu, gelu_new, ",
                         "gelu_pytorch_tanh or relu, got ", Shown(value));
}

absl::Status ReadAttentionBias(const json::object& json,
                               TransformerConfig* config) {
  ASSIGN_OR_RETURN(config->has_qkv_bias,
                   ReadBool(json, "attention_bias", false));
  config->has_output_bias = config->has_qkv_bias;
  return absl::OkStatus();
}

absl::Status ReadRope(const json::object& json, const RopeRules& rules,
                      TransformerConfig* config) {
  ASSIGN_OR_RETURN(config->rope, ReadRopeParameters(json, config->max_context,
                                                    config->head_dim, rules));
  config->max_context = MaxContext(config->rope, config->max_context);
  return absl::OkStatus();
}

absl::StatusOr<int> ReadWindow(const json::object& json, std::string_view key,
                               int fallback) {
  const json::value* value = json.if_contains(key);
  if (value != nullptr && value->is_null()) return 0;
  return ReadInt(json, key, 1, kMaxContext, fallback);
}

absl::Status ReadLayerTypes(const json::object& json, int window,
                            const std::function<bool(int)>& is_local,
                            TransformerConfig* config) {
  const json::value* types = FindField(json, "layer_types");
  if (types != nullptr &&
      (!types->is_array() ||
       std::ssize(types->get_array()) != config->num_layers())) {
    return InvalidArgument("layer_types must be a list of ",
                           config->num_layers(), " names, got ", Shown(types));
  }
  for (int i = 0; i < config->num_layers(); ++i) {
    LayerConfig& layer = config->layers[i];
    layer.window = 0;
    bool local = false;
    if (types == nullptr) {
      local = is_local(i);
    } else {
      ASSIGN_OR_RETURN(local, IsLocal(types->get_array()[i]));
    }
    if (!local) continue;
    if (window == 0) {
      return InvalidArgument(
          "layer ", i,
          " is sliding_attention and no sliding_window is in use, "
          "got ",
          Shown(json.if_contains("sliding_window")));
    }
    layer.window = window;
  }
  return absl::OkStatus();
}

absl::StatusOr<double> ReadSoftCap(const json::object& json,
                                   std::string_view key, double fallback) {
  const json::value* value = json.if_contains(key);
  if (value != nullptr && value->is_null()) return 0;
  if (value == nullptr) return fallback;
  return ReadNumber(json, key, 0, kMaxSoftCap);
}

}  // namespace espalier

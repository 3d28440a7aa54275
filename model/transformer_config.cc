#include "model/transformer_config.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "model/config_fields.h"
#include "request/json/generation_config.h"

namespace espalier {
namespace {

constexpr size_t kMaxFileBytes = 16 << 20;
// Far above any model's.
constexpr int kMaxWidth = 1 << 20;
constexpr int kMaxLayers = 1 << 12;
constexpr int kMaxHeads = 1 << 14;
constexpr int kMaxHeadDim = 1 << 12;
constexpr int kMaxVocabulary = 1 << 26;
constexpr int kMaxContext = 1 << 26;

absl::StatusOr<json::object> ReadObject(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  ASSIGN_OR_RETURN(json::value value, ParseJson(text));
  if (!value.is_object()) return InvalidArgument("must be a JSON object");
  return std::move(value.get_object());
}

absl::Status CheckArchitecture(const json::object& config) {
  const json::value* type = FindField(config, "model_type");
  if (type == nullptr || *type != "llama") {
    return InvalidArgument("model_type must be llama, got ", Shown(type));
  }
  const json::value* names = FindField(config, "architectures");
  if (names == nullptr || *names != json::array{"LlamaForCausalLM"}) {
    return InvalidArgument("architectures must be [\"LlamaForCausalLM\"], got ",
                           Shown(names));
  }
  return absl::OkStatus();
}

// Refuses what would change the computation.
absl::Status CheckFeatures(const json::object& config) {
  const json::value* activation = FindField(config, "hidden_act");
  if (activation != nullptr && *activation != "silu") {
    return InvalidArgument("hidden_act must be silu, got ", Shown(activation));
  }
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    ASSIGN_OR_RETURN(const bool bias, ReadBool(config, key, false));
    if (bias) return InvalidArgument(key, " true is not supported");
  }
  if (FindField(config, "quantization_config") != nullptr) {
    return InvalidArgument("quantization_config is not supported");
  }
  return absl::OkStatus();
}

absl::Status ReadHeads(const json::object& json, TransformerConfig* config) {
  ASSIGN_OR_RETURN(config->num_heads,
                   ReadInt(json, "num_attention_heads", 1, kMaxHeads));
  ASSIGN_OR_RETURN(config->num_kv_heads, ReadInt(json, "num_key_value_heads", 1,
                                                 kMaxHeads, config->num_heads));
  if (config->num_heads % config->num_kv_heads != 0) {
    return InvalidArgument("num_attention_heads ", config->num_heads,
                           " must be a multiple of num_key_value_heads ",
                           config->num_kv_heads);
  }
  ASSIGN_OR_RETURN(config->head_dim,
                   ReadInt(json, "head_dim", 1, kMaxHeadDim,
                           config->hidden_size / config->num_heads));
  if (config->head_dim < 2 || config->head_dim % 2 != 0) {
    return InvalidArgument("head_dim must be even and at least 2, got ",
                           config->head_dim);
  }
  return absl::OkStatus();
}

absl::Status ReadSizes(const json::object& json, TransformerConfig* config) {
  ASSIGN_OR_RETURN(config->vocab_size,
                   ReadInt(json, "vocab_size", 1, kMaxVocabulary));
  ASSIGN_OR_RETURN(config->hidden_size,
                   ReadInt(json, "hidden_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config->intermediate_size,
                   ReadInt(json, "intermediate_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config->num_layers,
                   ReadInt(json, "num_hidden_layers", 1, kMaxLayers));
  ASSIGN_OR_RETURN(config->max_context,
                   ReadInt(json, "max_position_embeddings", 1, kMaxContext));
  return ReadHeads(json, config);
}

absl::Status ReadEosTokenIds(const json::object& json,
                             TransformerConfig* config) {
  const json::value* value = FindField(json, "eos_token_id");
  if (value == nullptr) return absl::OkStatus();
  const json::array ids =
      value->is_array() ? value->get_array() : json::array{*value};
  config->eos_token_ids.clear();
  for (const json::value& id : ids) {
    if (!id.is_int64() || id.get_int64() < 0 ||
        id.get_int64() >= config->vocab_size) {
      return InvalidArgument("eos_token_id must be in [0, ", config->vocab_size,
                             "), got ", Shown(&id));
    }
    config->eos_token_ids.push_back(static_cast<TokenId>(id.get_int64()));
  }
  return absl::OkStatus();
}

absl::Status ReadModel(const std::string& path, TransformerConfig* config) {
  ASSIGN_OR_RETURN(const json::object json, ReadObject(path));
  RETURN_IF_ERROR(CheckArchitecture(json));
  RETURN_IF_ERROR(CheckFeatures(json));
  RETURN_IF_ERROR(ReadSizes(json, config));
  ASSIGN_OR_RETURN(config->rms_norm_eps,
                   ReadNumber(json, "rms_norm_eps", 0, 1, 1e-6));
  ASSIGN_OR_RETURN(config->tie_word_embeddings,
                   ReadBool(json, "tie_word_embeddings", false));
  ASSIGN_OR_RETURN(config->rope, ReadRopeParameters(json, config->max_context));
  return ReadEosTokenIds(json, config);
}

absl::Status ReadGeneration(const std::string& path,
                             TransformerConfig* config) {
  ASSIGN_OR_RETURN(const json::object json, ReadGenerationConfig(path));
  ASSIGN_OR_RETURN(config->default_max_new_tokens,
                   ReadInt(json, "max_new_tokens", 1, kMaxContext,
                           config->default_max_new_tokens));
  return ReadEosTokenIds(json, config);
}

}  // namespace

absl::StatusOr<TransformerConfig> ReadTransformerConfig(
    const std::string& directory) {
  TransformerConfig config;
  const std::string model_path = directory + "/config.json";
  RETURN_IF_ERROR(Annotate(ReadModel(model_path, &config), model_path));
  const std::string generation_path = directory + "/generation_config.json";
  const absl::Status status = ReadGeneration(generation_path, &config);
  if (!status.ok() && !absl::IsNotFound(status)) {
    return Annotate(status, generation_path);
  }
  return config;
}

}  // namespace espalier

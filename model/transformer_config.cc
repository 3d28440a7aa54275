#include "model/transformer_config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "base/wording.h"
#include "model/config_fields.h"
#include "model/ctranslate2/ctranslate2_model.h"
#include "model/family_fields.h"
#include "model/fp8_config.h"
#include "model/model_family.h"
#include "request/json/generation_config.h"

namespace espalier {

absl::Status CheckFeatures(const json::object& config,
                           bool is_encoder_decoder) {
  for (const char* key :
       {"add_cross_attention", "use_bidirectional_attention"}) {
    ASSIGN_OR_RETURN(const bool is_set, ReadBool(config, key, false));
    if (is_set) return InvalidArgument(key, " true is not supported");
  }
  ASSIGN_OR_RETURN(const bool has_encoder,
                   ReadBool(config, "is_encoder_decoder", is_encoder_decoder));
  if (has_encoder != is_encoder_decoder) {
    return InvalidArgument("is_encoder_decoder ",
                           has_encoder ? "true" : "false", " is not supported");
  }
  ASSIGN_OR_RETURN(const bool is_causal, ReadBool(config, "is_causal", true));
  if (!is_causal) return InvalidArgument("is_causal false is not supported");
  const json::value* pruned = FindField(config, "pruned_heads");
  if (pruned != nullptr && *pruned != json::object()) {
    return InvalidArgument("pruned_heads must be {}, got ", Shown(pruned));
  }
  return absl::OkStatus();
}

namespace {

// The meaning of "eos_token_id": null.
enum class NullEos {
  kIsNone,     // no id, not even the family's default
  kIsMissing,  // as if the field were missing
};

absl::Status ReadEosTokenIds(const json::object& json, NullEos null,
                             TransformerConfig* config) {
  const json::value* value = json.if_contains("eos_token_id");
  if (value == nullptr) return absl::OkStatus();
  if (value->is_null()) {
    if (null == NullEos::kIsNone) config->eos_token_ids.clear();
    return absl::OkStatus();
  }
  const json::array ids =
      value->is_array() ? value->get_array() : json::array{*value};
  config->eos_token_ids.clear();
  for (const json::value& id : ids) {
    if (!id.is_int64()) {
      return InvalidArgument(
          "eos_token_id must be an integer or a list of integers, got ",
          Shown(&id));
    }
    // An id outside the vocabulary is never generated and is ignored: small
    // GPT-2 models trained from scratch keep the default of the large ones.
    if (id.get_int64() < 0 || id.get_int64() >= config->vocab_size) continue;
    config->eos_token_ids.push_back(static_cast<TokenId>(id.get_int64()));
  }
  return absl::OkStatus();
}

// Reads decoder_start_token_id if the object has it.
absl::Status ReadDecoderStart(const json::object& json,
                              TransformerConfig* config) {
  if (!config->encoder) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      config->encoder->decoder_start_token_id,
      ReadInt(json, "decoder_start_token_id", 0, config->vocab_size - 1,
              config->encoder->decoder_start_token_id));
  return absl::OkStatus();
}

// A family's own default (its class in transformers has one) may be of another
// vocabulary.
absl::Status CheckDefaultTokens(TransformerConfig* config) {
  std::erase_if(config->eos_token_ids,
                [&](TokenId id) { return id >= config->vocab_size; });
  if (!config->encoder ||
      config->encoder->decoder_start_token_id < config->vocab_size) {
    return absl::OkStatus();
  }
  return InvalidArgument("decoder_start_token_id is missing: its default, ",
                         config->encoder->decoder_start_token_id,
                         ", is not in the vocabulary of ", config->vocab_size);
}

absl::Status ReadGeneration(const json::object& json,
                            TransformerConfig* config) {
  RETURN_IF_ERROR(ReadDecoderStart(json, config));
  return ReadEosTokenIds(json, NullEos::kIsMissing, config);
}

//   path  the file that has the model's config, for errors
absl::StatusOr<TransformerConfig> ReadModelOf(const std::string& directory,
                                              std::string* path) {
  if (IsCTranslate2Directory(directory)) {
    *path = directory + "/model.bin";
    ASSIGN_OR_RETURN(CTranslate2Model model, CTranslate2Model::Open(directory));
    return std::move(model.config);
  }
  *path = directory + "/config.json";
  TransformerConfig config;
  ASSIGN_OR_RETURN(const json::object json, ReadConfigObject(*path));
  RETURN_IF_ERROR(Annotate(ReadModelConfig(json, &config), *path));
  return config;
}

}  // namespace

std::optional<FeatureShape> EncoderConfig::feature_shape() const {
  if (num_mel_bins == 0) return std::nullopt;
  return FeatureShape{.num_rows = 2 * max_tokens, .num_cols = num_mel_bins};
}

int TransformerConfig::max_intermediate_size() const {
  int most = 0;
  const auto count = [&](const std::vector<LayerConfig>& counted) {
    for (const LayerConfig& layer : counted) {
      most = std::max(most, layer.intermediate_size);
    }
  };
  count(layers);
  if (encoder) count(encoder->layers);
  return most;
}

float TransformerConfig::attention_scale() const {
  const double scalar =
      query_pre_attn_scalar > 0 ? query_pre_attn_scalar : head_dim;
  return 1.0f / std::sqrt(static_cast<float>(scalar));
}

absl::Status ReadModelConfig(const json::object& json,
                             TransformerConfig* config) {
  ASSIGN_OR_RETURN(const ModelFamily* family, FindModelFamily(json));
  RETURN_IF_ERROR(CheckFeatures(json, family->is_encoder_decoder));
  config->family = family->name;
  ASSIGN_OR_RETURN(config->has_fp8_weights, ReadFp8Config(json));
  RETURN_IF_ERROR(family->read(json, config));
  RETURN_IF_ERROR(ReadDecoderStart(json, config));
  return ReadEosTokenIds(json, NullEos::kIsNone, config);
}

absl::StatusOr<TransformerConfig> ReadTransformerConfig(
    const std::string& directory) {
  std::string model_path;
  ASSIGN_OR_RETURN(TransformerConfig config,
                   ReadModelOf(directory, &model_path));
  const std::string generation_path = directory + "/generation_config.json";
  const absl::StatusOr<json::object> generation =
      ReadConfigObject(generation_path);
  if (!absl::IsNotFound(generation.status())) {
    RETURN_IF_ERROR(generation.status());
    RETURN_IF_ERROR(
        Annotate(ReadGeneration(*generation, &config), generation_path));
  }
  RETURN_IF_ERROR(Annotate(CheckDefaultTokens(&config), model_path));
  return config;
}

}  // namespace espalier

// Gemma 3, its text models: norms of queries and keys, and a sliding window in
// all layers but every sixth; layers with a window have rotary positions of
// their own. Models that read images, too, have the text model within; it is
// loaded alone.
#include <string_view>
#include <utility>

#include "base/status.h"
#include "model/config_fields.h"
#include "model/families/gemma_fields.h"
#include "model/family_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

constexpr double kGlobalTheta = 1e6;
constexpr double kLocalTheta = 1e4;
constexpr RopeType kGemma3RopeTypes[] = {RopeType::kDefault, RopeType::kLinear};

// The object of one kind of layers in rope_parameters; null if there is none.
absl::StatusOr<const json::object*> FindNested(const json::object& json,
                                               std::string_view key) {
  const json::value* parameters = FindField(json, "rope_parameters");
  if (parameters == nullptr) return nullptr;
  const json::object* object = parameters->if_object();
  for (const char* name : {"full_attention", "sliding_attention"}) {
    const json::value* nested =
        object == nullptr ? nullptr : object->if_contains(name);
    if (nested == nullptr || !nested->is_object()) {
      return InvalidArgument("rope_parameters must have an object ", name,
                             ", got ", Shown(parameters));
    }
  }
  return &object->at(key).get_object();
}

// As transformers merges them: rope_parameters, then rope_scaling, which is
// that of layers without a window alone; a theta beside them where they have
// none.
absl::StatusOr<RopeParameters> ReadRopeOf(const json::object& json,
                                          std::string_view layer_type,
                                          std::string_view theta_key,
                                          double theta,
                                          const TransformerConfig& config) {
  ASSIGN_OR_RETURN(const json::object* nested, FindNested(json, layer_type));
  json::object rope = nested == nullptr ? json::object() : *nested;
  if (layer_type == "full_attention") {
    const json::value* scaling = FindField(json, "rope_scaling");
    if (scaling != nullptr && !scaling->is_object()) {
      return InvalidArgument("rope_scaling must be an object, got ",
                             Shown(scaling));
    }
    if (scaling != nullptr) {
      for (const auto& [key, value] : scaling->get_object()) rope[key] = value;
    }
  }
  ASSIGN_OR_RETURN(const double outer,
                   ReadNumber(json, theta_key, 0, kMaxRopeTheta, theta));
  return ReadRopeObject(rope, json, outer, config.max_context, config.head_dim,
                        {.types = kGemma3RopeTypes});
}

absl::Status ReadGemma3(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(ReadGemma(json, /*logit_soft_cap=*/0, config));
  // transformers reads it, and caps no scores by it.
  const json::value* const cap = FindField(json, "attn_logit_softcapping");
  if (cap != nullptr) {
    return InvalidArgument("attn_logit_softcapping must be null, got ",
                           Shown(cap));
  }
  config->names.q_norm = "self_attn.q_norm";
  config->names.k_norm = "self_attn.k_norm";
  config->has_qk_norms = true;
  ASSIGN_OR_RETURN(const int window, ReadGemmaWindow(json));
  ASSIGN_OR_RETURN(const int pattern,
                   ReadInt(json, "sliding_window_pattern", 1, kMaxLayers, 6));
  RETURN_IF_ERROR(ReadLayerTypes(
      json, window, [&](int i) { return (i + 1) % pattern != 0; }, config));
  ASSIGN_OR_RETURN(
      config->rope,
      ReadRopeOf(json, "full_attention", "rope_theta", kGlobalTheta, *config));
  ASSIGN_OR_RETURN(config->local_rope,
                   ReadRopeOf(json, "sliding_attention", "rope_local_base_freq",
                              kLocalTheta, *config));
  return absl::OkStatus();
}

// Defaults of transformers' configuration class, which published files leave
// out.
constexpr std::pair<std::string_view, int> kTextSizes[] = {
    {"vocab_size", 262208},
    {"hidden_size", 2304},
    {"intermediate_size", 9216},
    {"num_hidden_layers", 26},
    {"num_attention_heads", 8},
    {"num_key_value_heads", 4},
    {"max_position_embeddings", 131072}};
constexpr std::string_view kNotOfText[] = {
    "vision_tower.", "multi_modal_projector.", "model.vision_tower.",
    "model.multi_modal_projector."};

absl::Status ReadTextConfig(json::object text, TransformerConfig* config) {
  RETURN_IF_ERROR(CheckFeatures(text, /*is_encoder_decoder=*/false));
  for (const auto& [key, size] : kTextSizes) {
    if (FindField(text, key) == nullptr) text[key] = size;
  }
  return ReadGemma3(text, config);
}

absl::Status ReadGemma3WithImages(const json::object& json,
                                  TransformerConfig* config) {
  const json::value* const text = FindField(json, "text_config");
  if (text == nullptr || !text->is_object()) {
    return InvalidArgument("text_config must be an object, got ", Shown(text));
  }
  RETURN_IF_ERROR(
      Annotate(ReadTextConfig(text->get_object(), config), "text_config"));
  ASSIGN_OR_RETURN(const bool is_tied,
                   ReadBool(json, "tie_word_embeddings", true));
  if (!is_tied || !config->tie_word_embeddings) {
    return InvalidArgument("tie_word_embeddings false is not supported with ",
                           "text_config");
  }
  config->names.base = "language_model.model.";
  config->names.other_base = "model.language_model.";
  config->names.not_of_text = kNotOfText;
  return absl::OkStatus();
}

}  // namespace

constexpr ModelFamily kGemma3ImagesFamily = {
    .model_type = "gemma3",
    .name = "Gemma 3, its text model",
    .architecture = "Gemma3ForConditionalGeneration",
    .read = ReadGemma3WithImages};
constexpr ModelFamily kGemma3Family = {.model_type = "gemma3_text",
                                       .name = "Gemma 3",
                                       .architecture = "Gemma3ForCausalLM",
                                       .read = ReadGemma3};

}  // namespace espalier

// Gemma 3, its text models: norms of queries and keys, and a sliding window in
// all layers but every sixth; layers with a window have rotary positions of
// their own.
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

}  // namespace

constexpr ModelFamily kGemma3Family = {.model_type = "gemma3_text",
                                       .name = "Gemma 3",
                                       .architecture = "Gemma3ForCausalLM",
                                       .read = ReadGemma3};

}  // namespace espalier

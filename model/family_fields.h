// Readers for groups of config fields that several families (model_family.h)
// share, with their limits. Errors are kInvalidArgument naming the field and
// the value.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json.h"
#include "model/transformer_config.h"

namespace espalier {

// Limits far above those of any model.
inline constexpr int kMaxWidth = 1 << 20;
inline constexpr int kMaxLayers = 1 << 12;
inline constexpr int kMaxHeads = 1 << 14;
inline constexpr int kMaxHeadDim = 1 << 12;
inline constexpr int kMaxVocabulary = 1 << 26;
inline constexpr int kMaxContext = 1 << 26;

// Defaults that a family's configuration class has for missing fields.
struct DecoderDefaults {
  int num_kv_heads = 0;  // 0: as many as heads
  int head_dim = 0;      // 0: hidden_size / num_heads
  std::string_view norm_eps_field = "rms_norm_eps";
  double norm_eps = 1e-6;
  std::string_view activation_field = "hidden_act";
  Activation activation = Activation::kSilu;
  bool gelu_is_tanh = false;  // "gelu" names the tanh approximation
  bool tie_word_embeddings = false;
};

// Checks fields common to all families that would change the computation.
// Errors: naming a field that is not supported.
absl::Status CheckFeatures(const json::object& config, bool is_encoder_decoder);

// Reads the fields that all RoPE families have under the same names: sizes,
// heads, the norms' epsilon, the activation, tie_word_embeddings.
absl::Status ReadDecoder(const json::object& json,
                         const DecoderDefaults& defaults,
                         TransformerConfig* config);

// Sets num_kv_heads = num_heads and head_dim = hidden_size / num_heads.
// Errors: naming the two fields, if the division has a remainder or head_dim
// exceeds kMaxHeadDim.
absl::Status SetHeadDim(TransformerConfig* config, std::string_view size_field,
                        std::string_view heads_field);

absl::StatusOr<Activation> ReadActivation(const json::object& json,
                                          std::string_view key,
                                          Activation fallback);

// ReadActivation for families without a gate, which may also use gelu and relu.
absl::StatusOr<Activation> ReadAnyActivation(const json::object& json,
                                             std::string_view key,
                                             Activation fallback);

// Reads attention_bias: biases of the q, k, v and output projections.
absl::Status ReadAttentionBias(const json::object& json,
                               TransformerConfig* config);

// Reads rope_parameters, or rope_theta and rope_scaling, for all layers.
absl::Status ReadRope(const json::object& json, const RopeRules& rules,
                      TransformerConfig* config);

// Reads an attention window in tokens; `fallback` if the field is missing, 0
// (no window) if it is null.
absl::StatusOr<int> ReadWindow(const json::object& json, std::string_view key,
                               int fallback);

// Sets the window of each layer, from layer_types or, if the field is missing,
// from is_local(layer_idx).
// Errors: also if a layer has a window and `window` is 0.
absl::Status ReadLayerTypes(const json::object& json, int window,
                            const std::function<bool(int)>& is_local,
                            TransformerConfig* config);

// Reads a soft cap; 0 (no cap) if the field is null.
absl::StatusOr<double> ReadSoftCap(const json::object& json,
                                   std::string_view key, double fallback);

}  // namespace espalier

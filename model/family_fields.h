// What the readers of families (model_family.h) share: groups of fields that
// several of them have, with the limits of each. Errors are kInvalidArgument
// naming the field and the value.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json.h"
#include "model/transformer_config.h"

namespace espalier {

// Far above any model's.
inline constexpr int kMaxWidth = 1 << 20;
inline constexpr int kMaxLayers = 1 << 12;
inline constexpr int kMaxHeads = 1 << 14;
inline constexpr int kMaxHeadDim = 1 << 12;
inline constexpr int kMaxVocabulary = 1 << 26;
inline constexpr int kMaxContext = 1 << 26;
// A source is read in one step, whose work grows with its square.
inline constexpr int kMaxSourceTokens = 2048;

// What a family's configuration class has for fields that are missing.
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

// Errors: fields of any family that would change the computation.
absl::Status CheckFeatures(const json::object& config, bool is_encoder_decoder);

// Fields that all families with rotated heads have under the same names: sizes,
// heads, the norms' epsilon, the activation, tie_word_embeddings.
absl::Status ReadDecoder(const json::object& json,
                         const DecoderDefaults& defaults,
                         TransformerConfig* config);

// num_kv_heads and head_dim where the hidden size is divided among the heads.
// Errors: naming the two fields that are given, if it does not divide, or a
// head is larger than any.
absl::Status SetHeadDim(TransformerConfig* config, std::string_view size_field,
                        std::string_view heads_field);

absl::StatusOr<Activation> ReadActivation(const json::object& json,
                                          std::string_view key,
                                          Activation fallback);

// The same where there may be no gate, of all activations that there are.
absl::StatusOr<Activation> ReadAnyActivation(const json::object& json,
                                             std::string_view key,
                                             Activation fallback);

// attention_bias, of q, k, v and the output.
absl::Status ReadAttentionBias(const json::object& json,
                               TransformerConfig* config);

// rope_parameters or rope_theta and rope_scaling, of all layers.
absl::Status ReadRope(const json::object& json, const RopeRules& rules,
                      TransformerConfig* config);

// A window of tokens, of the field's value. A missing field stands for
// `fallback`, null for none.
absl::StatusOr<int> ReadWindow(const json::object& json, std::string_view key,
                               int fallback);

// Which layers have the window: layer_types, or what `is_local` says of a layer
// where the field is missing.
// Errors: also if such a layer is there and `window` is 0.
absl::Status ReadLayerTypes(const json::object& json, int window,
                            const std::function<bool(int)>& is_local,
                            TransformerConfig* config);

// A soft cap; null stands for none.
absl::StatusOr<double> ReadSoftCap(const json::object& json,
                                   std::string_view key, double fallback);

}  // namespace espalier

// What the families of Gemma share.
#pragma once

#include "absl/status/status.h"
#include "base/json.h"
#include "model/transformer_config.h"

namespace espalier {

// Soft caps where fields are missing; 0: none.
struct GemmaDefaults {
  double attention_soft_cap = 0;
  double logit_soft_cap = 0;
};

// Everything but windows and rotary positions: norms that multiply by
// 1 + weight, before and after each part, scaled embeddings, gated GELU,
// query_pre_attn_scalar, soft caps.
absl::Status ReadGemma(const json::object& json, const GemmaDefaults& defaults,
                       TransformerConfig* config);

// sliding_window.
absl::StatusOr<int> ReadGemmaWindow(const json::object& json);

}  // namespace espalier

// What the families of Gemma share.
#pragma once

#include "absl/status/status.h"
#include "base/json.h"
#include "model/transformer_config.h"

namespace espalier {

// Everything but windows and rotary positions: norms that multiply by
// 1 + weight, before and after each part, scaled embeddings, gated GELU,
// query_pre_attn_scalar, the soft cap of logits, by default `logit_soft_cap`, 0
// for none.
absl::Status ReadGemma(const json::object& json, double logit_soft_cap,
                       TransformerConfig* config);

// sliding_window.
absl::StatusOr<int> ReadGemmaWindow(const json::object& json);

}  // namespace espalier

// Config fields that all Gemma families share.
#pragma once

#include "absl/status/status.h"
#include "base/json.h"
#include "model/transformer_config.h"

namespace espalier {

// Reads everything but windows and RoPE: norms that multiply by 1 + weight,
// before and after each part, scaled embeddings, gated GELU,
// query_pre_attn_scalar, and the soft cap on logits, by default
// `logit_soft_cap` (0: none).
absl::Status ReadGemma(const json::object& json, double logit_soft_cap,
                       TransformerConfig* config);

// Reads sliding_window.
absl::StatusOr<int> ReadGemmaWindow(const json::object& json);

}  // namespace espalier

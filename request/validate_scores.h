// Checks of the options that change scores: each by itself (ValidatePenalties),
// and together, so that no combination makes a score infinite or NaN, given
// finite logits (ValidateScores).
#pragma once

#include "absl/status/status.h"
#include "request/generation_params.h"

namespace espalier {

// The penalties, the length penalty included.
// REQUIRES: max_new_tokens is set.
// Errors: kInvalidArgument naming the field and the value.
absl::Status ValidatePenalties(const GenerationParams& params);

// REQUIRES: ValidatePenalties, and ValidateConstraints of validate_tokens.h,
// have accepted `params`.
// Errors: kInvalidArgument naming the field that makes a sum too large.
absl::Status ValidateScores(const GenerationParams& params);

}  // namespace espalier

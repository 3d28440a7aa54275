// ValidateLengths: how many tokens a request generates, within the room that
// its prompt leaves in the model's context.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/model_description.h"
#include "request/generation_params.h"

namespace espalier {

// Sets max_new_tokens if unset: to the longest of allowed_sequences, else to
// the model's default, within the room.
// Errors: kInvalidArgument naming the field, the value and the room.
absl::Status ValidateLengths(const ModelDescription& model,
                             int64_t num_prompt_tokens,
                             GenerationParams* params);

}  // namespace espalier

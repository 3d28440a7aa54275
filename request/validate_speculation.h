// ValidateSpeculation: the draft method and the number of draft tokens.
#pragma once

#include "absl/status/status.h"
#include "base/model_description.h"
#include "request/generation_params.h"

namespace espalier {

// Errors: kInvalidArgument naming the field and the value.
absl::Status ValidateSpeculation(const ModelDescription& model,
                                 const GenerationParams& params);

}  // namespace espalier

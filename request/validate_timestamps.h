// ValidateTimestamps: Whisper's times, and what has no meaning beside them.
#pragma once

#include "absl/status/status.h"
#include "base/model_description.h"
#include "request/generation_params.h"

namespace espalier {

// Errors: kInvalidArgument naming the field and the value.
absl::Status ValidateTimestamps(const ModelDescription& model,
                                const GenerationParams& params);

}  // namespace espalier

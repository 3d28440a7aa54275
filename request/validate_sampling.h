// ValidateSampling: temperature and filters. They must be off where nothing is
// drawn, so that no option is ignored.
#pragma once

#include "absl/status/status.h"
#include "request/generation_params.h"

namespace espalier {

// Errors: kInvalidArgument naming the field and the value.
absl::Status ValidateSampling(const GenerationParams& params);

}  // namespace espalier

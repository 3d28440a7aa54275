// ValidateSearch: the number and kind of sequences: beams, samples, groups,
// stochastic beams, and when a search may end.
#pragma once

#include "absl/status/status.h"
#include "base/model_description.h"
#include "request/generation_params.h"

namespace espalier {

// Runs first: other checks rely on these.
// Errors: kInvalidArgument naming the field and the value.
absl::Status ValidateSearch(const ModelDescription& model,
                            const GenerationParams& params);

}  // namespace espalier

// ValidateHostSelection: the options, and those beside each other, that only an
// executor that selects on the host has.
#pragma once

#include "absl/status/status.h"
#include "base/model_description.h"
#include "request/generation_params.h"

namespace espalier {

// Errors: kInvalidArgument naming the field, if the model selects on a GPU
// (ModelDescription::selects_on_host).
absl::Status ValidateHostSelection(const ModelDescription& model,
                                   const GenerationParams& params);

}  // namespace espalier

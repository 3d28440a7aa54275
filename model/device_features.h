// Which features of a transformer the forward pass on a CUDA device computes;
// that on the CPU computes all of them. A host function, so that a program
// without a device can say what one would do.
#pragma once

#include "absl/status/status.h"
#include "model/transformer_config.h"

namespace espalier {

// Errors: kInvalidArgument naming the first feature that is not there.
absl::Status CheckCudaFeatures(const TransformerConfig& config);

}  // namespace espalier

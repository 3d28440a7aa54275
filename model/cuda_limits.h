// How large a transformer the forward pass on a CUDA device takes. It computes
// every feature of TransformerConfig, as the one on the CPU does. A host
// function, so that a program without a device can say what one would do.
#pragma once

#include "absl/status/status.h"
#include "model/transformer_config.h"

namespace espalier {

inline constexpr int kMaxCudaHeadDim = 256;
inline constexpr int kMaxCudaHiddenSize = 16384;

// Dimensions from one head to the next in the keys and values of a device.
inline int CudaHeadWidth(int head_dim) { return (head_dim + 7) / 8 * 8; }

// Errors: kInvalidArgument naming the size that is too large, or the feature
// that is for the CPU alone.
absl::Status CheckCudaLimits(const TransformerConfig& config);

}  // namespace espalier

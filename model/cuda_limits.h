// Size limits of the CUDA forward pass. It supports every feature of
// TransformerConfig, as the CPU's does. The check runs on the host, so that a
// program without a device can report it.
#pragma once

#include "absl/status/status.h"
#include "model/transformer_config.h"

namespace espalier {

inline constexpr int kMaxCudaHeadDim = 256;
inline constexpr int kMaxCudaHiddenSize = 16384;

// Stride between heads in device keys and values, in dimensions.
inline int CudaHeadWidth(int head_dim) { return (head_dim + 7) / 8 * 8; }

// Errors: kInvalidArgument naming the size that is too large, or the feature
// that only the CPU supports.
absl::Status CheckCudaLimits(const TransformerConfig& config);

}  // namespace espalier

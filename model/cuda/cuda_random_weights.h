// RandomCudaTransformerWeights: weights of a config without a checkpoint, for
// benchmarks and tests. Each matrix has numbers of its own, which are the same
// at every call.
//
// Thread safety: as CUDA's default stream, on which it runs.
#pragma once

#include "absl/status/statusor.h"
#include "model/cuda/cuda_transformer_weights.h"
#include "model/transformer_config.h"

namespace espalier {

// Makes normally distributed weights with standard deviation 0.02, norms of 1
// and biases of 0. Waits for the device.
// Errors: as LoadCudaTransformerWeights, except those of a checkpoint.
absl::StatusOr<CudaTransformerWeights> RandomCudaTransformerWeights(
    const TransformerConfig& config, const CudaWeightTypes& types);

}  // namespace espalier

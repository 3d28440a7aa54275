// The kernels of CudaAttention. Call Prepare...() once per device before the
// first launch.
#pragma once

#include "absl/status/status.h"
#include "base/cuda.h"
#include "base/dtype.h"
#include "kernels/attention/cuda_attention_parts.cuh"

namespace espalier::cuda_attention {

// 16-bit types and heads of 64 or 128 (AttentionUsesTensorCores).
absl::Status PrepareTensorCores(DType dtype, int head_dim, bool has_options,
                                const CudaDevice& device);
absl::Status LaunchTensorCores(DType dtype, const Params& params,
                               const CudaDevice& device, cudaStream_t stream);

// Every other shape, and f32: products in float32, any page size, heads of any
// multiple of 8 up to 256.
absl::Status PrepareSimt(DType dtype, const CudaDevice& device);
absl::Status LaunchSimt(DType dtype, const Params& params,
                        const CudaDevice& device, cudaStream_t stream);

// Runs after either: merges the split-KV partial outputs of a query, in the
// order of their items' ordinals.
//   out = sum_i 2^(m_i - m) o_i / sum_i 2^(m_i - m) l_i,  m = max_i m_i
absl::Status LaunchMerge(DType dtype, const Params& params,
                         const CudaDevice& device, cudaStream_t stream);

}  // namespace espalier::cuda_attention

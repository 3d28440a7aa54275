// Sizes and rules for dividing work that the planner and the kernels of
// cuda_attention.h share. Plain C++.
//
// The query heads that share a key/value head are rows of one small matrix.
// With group = HeadsPerKvHead(), row r of an item is head r % group of the
// item's query r / group.
#pragma once

#include "kernels/attention/cuda_attention.h"

namespace espalier {

// Rows of one warp: those of one matrix instruction.
inline constexpr int kAttentionWarpRows = 16;
// Rows that a block of four warps multiplies.
inline constexpr int kAttentionBlockRows = 64;
// Rows that the SIMT kernel processes at once. A query with more heads per
// key/value head takes several rounds.
inline constexpr int kAttentionAnyRows = 8;

inline int HeadsPerKvHead(const CudaAttentionShape& shape) {
  return shape.num_heads / shape.num_kv_heads;
}

// True if scores have a window, a cap or biases besides their scale. Kernels
// have separate code for that.
inline bool HasAttentionOptions(const CudaAttentionShape& shape) {
  return shape.window > 0 || shape.soft_cap > 0 || shape.biases != nullptr;
}

// True if the tensor-core kernel supports this shape. All others use the SIMT
// kernel, which multiplies in float32.
inline bool AttentionUsesTensorCores(const CudaAttentionShape& shape) {
  return !shape.without_tensor_cores && shape.dtype != DType::kFloat32 &&
         (shape.head_dim == 64 || shape.head_dim == 128) &&
         shape.page_size % 16 == 0 &&
         HeadsPerKvHead(shape) <= kAttentionBlockRows;
}

}  // namespace espalier

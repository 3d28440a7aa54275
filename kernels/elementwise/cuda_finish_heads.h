// Biases of queries, keys and values, and norms of queries and keys, between
// their projection and the rotary embedding, in models that have them.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/dtype.h"

namespace espalier {

// The widest head of CudaFinishHeads: it is held in a warp's registers.
inline constexpr int kMaxCudaFinishedHeadDim = 256;

struct CudaHeadShape {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;   // numbers of a head, padding included
  int norm_size = 0;  // numbers without padding, the divisor of a norm's mean;
                      // 0: head_dim. Padding is zero in qkv and in the bias,
                      // and stays zero.
};

// Constants of a layer, in device memory, 16-byte aligned; null if the model
// has none. The kernel loads them before the previous kernels have ended, so no
// kernel in flight on the stream may write them.
struct CudaHeadWeights {
  const float* bias = nullptr;    // [(num_heads + 2 * num_kv_heads) * head_dim]
  const float* q_norm = nullptr;  // [head_dim]
  const float* k_norm = nullptr;  // [head_dim]
  float epsilon = 1e-6f;          // for the norms

  bool empty() const {
    return bias == nullptr && q_norm == nullptr && k_norm == nullptr;
  }
};

// Adds the bias; then each head of q and of k that has a norm becomes
// x / sqrt(mean(x^2) + epsilon) * norm. In place:
//   qkv  [num_tokens, (num_heads + 2 * num_kv_heads) * head_dim]  dtype  device
//            q then k then v, 16-byte aligned
// A head's result depends on that head alone, in a fixed order of operations.
// Arithmetic is float32 in every dtype, rounded once on the way out. NaN and
// infinities propagate as in kernels/elementwise/elementwise.h. Enqueues on
// `stream` and returns, nothing if there are no tokens or weights; never
// allocates, may be captured.
// Errors: kInvalidArgument if head_dim is no multiple of 8 up to
// kMaxCudaFinishedHeadDim, kInternal if the launch is refused.
absl::Status CudaFinishHeads(void* qkv, DType dtype, int num_tokens,
                             const CudaHeadShape& shape,
                             const CudaHeadWeights& weights,
                             cudaStream_t stream);

}  // namespace espalier

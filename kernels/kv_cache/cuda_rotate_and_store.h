// Processes a step's queries, keys and values between their projection and
// attention: adds biases, rotates them, and stores keys and values in the
// tokens' pages.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/kv_cache/cuda_kv_cache.h"

namespace espalier {

// RotaryTable (kernels/elementwise/elementwise.h) in device memory, constant.
// Null: nothing is rotated.
struct CudaRotary {
  const float* cosines = nullptr;  // [num_positions, head_dim / 2]
  const float* sines = nullptr;
};

// The slots of tokens, in device memory, complete at the last barrier
// (GridDependency::kReadsEarly).
struct CudaTokenSlots {
  const int* positions = nullptr;     // [num_tokens]
  const int* token_tables = nullptr;  // [num_tokens]
  const int* tables = nullptr;        // [num_tables, table_stride] page ids
  int table_stride = 0;
};

// Adds the bias to q, k and v, rotates q in place (half-split layout: dimension
// i pairs with i + head_dim / 2), and writes rotated k, and v, to the tokens'
// slots.
//   qkv   [num_tokens, (num_heads + 2 * cache.num_kv_heads) * head_dim]
//             cache.dtype  device  q then k then v; k and v are left as they
//             are
//   bias  [(num_heads + 2 * cache.num_kv_heads) * head_dim]  f32  device,
//             constant; null: none
// If two tokens have one slot, as padding rows share the null page, it gets
// numbers of both.
// Arithmetic is float32 in every dtype, rounded once on the way out. Enqueues
// on `stream` and returns; never allocates, may be captured. Errors:
// kInvalidArgument if a shape is not supported, kInternal if the launch is
// refused.
// REQUIRES: head_dim % 8 == 0; positions are within the rotary table and
// tables.
absl::Status CudaRotateAndStore(void* qkv, int num_tokens, int num_heads,
                                const float* bias, const CudaRotary& rotary,
                                const CudaTokenSlots& slots,
                                const CudaKvCache& cache, int layer,
                                cudaStream_t stream);

}  // namespace espalier

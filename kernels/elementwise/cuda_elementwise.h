// The small kernels of a Llama layer on the device: what stands between matrix
// products and attention. A row's result depends on that row alone, in a fixed
// order of operations, whatever else is in the call.
//
// Rows of activations are `width` numbers wide: the model's size, rounded up to
// a multiple of 8; what is past the size is zero and stays zero.
//
// Arithmetic is float32 in every dtype, rounded once on the way out. NaN and
// infinities propagate as in kernels/elementwise/elementwise.h.
//
// All calls enqueue on `stream` and return; they never allocate and may be
// captured. Errors: kInvalidArgument if a shape is not supported, kInternal if
// a launch is refused.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/attention/cuda_attention.h"
#include "kernels/matmul/cuda_matmul.h"
#include "kernels/matmul/packed_matrix.h"

namespace espalier {

// The widest row that CudaRmsNorm takes: it is held in registers.
inline constexpr int kMaxCudaNormWidth = 16384;

// One of a model's norms.
struct CudaNorm {
  const float* weight = nullptr;  // [width]  device, constant, zero padded
  int size = 0;                   // what the mean divides by
  int width = 0;                  // `size` rounded up to a multiple of 8
  float epsilon = 1e-6f;
};

// out = x / sqrt(mean(x^2) + epsilon) * weight, row by row.
//   x    [num_rows, width]  f32    device
//   out  [num_rows, width]  dtype  device
absl::Status CudaRmsNorm(const float* x, int num_rows, const CudaNorm& norm,
                         DType dtype, void* out, cudaStream_t stream);

// x += addends, first to last, and out = CudaRmsNorm(x).
//   x    [num_rows, width]  f32    device
//   out  [num_rows, width]  dtype  device
// REQUIRES: each addend is [num_rows, width].
absl::Status CudaAddRmsNorm(float* x, const CudaAddends& addends, int num_rows,
                            const CudaNorm& norm, DType dtype, void* out,
                            cudaStream_t stream);

// x = the tokens' rows of the embedding table, and normed = CudaRmsNorm(x).
// The forward pass's GridDependency::kBarrier (base/grid_dependency.h): kernels
// behind it read what a step is made of (positions, tables, work lists, keys
// and values of earlier steps) early.
//   tokens  [num_tokens]         device, each in [0, embedding.num_rows)
//   x       [num_tokens, width]  f32              device
//   normed  [num_tokens, width]  embedding.dtype  device
// REQUIRES: embedding.num_cols == norm.width.
absl::Status CudaEmbed(const int* tokens, int num_tokens,
                       const CudaMatrix& embedding, const CudaNorm& norm,
                       float* x, void* normed, cudaStream_t stream);

// RotaryTable (kernels/elementwise/elementwise.h) in device memory, constant.
struct CudaRotary {
  const float* cosines = nullptr;  // [num_positions, head_dim / 2]
  const float* sines = nullptr;
};

// Which slot of which page belongs to a token; all in device memory, and
// complete at the last barrier (GridDependency::kReadsEarly).
struct CudaTokenSlots {
  const int* positions = nullptr;     // [num_tokens]
  const int* token_tables = nullptr;  // [num_tokens]
  const int* tables = nullptr;        // [num_tables, table_stride] page ids
  int table_stride = 0;
};

// Rotates q in place (half-split layout: dimension i pairs with
// i + head_dim / 2), and writes rotated k, and v, to the tokens' slots.
//   qkv  [num_tokens, (num_heads + 2 * cache.num_kv_heads) * head_dim]
//            cache.dtype  device  q then k then v; k and v are left as they are
// Where two tokens have one slot, as rows without a sequence have that share
// the spare page, it is left with numbers of both.
// REQUIRES: head_dim % 8 == 0; positions are within the rotary table and
// tables.
absl::Status CudaRotateAndStore(void* qkv, int num_tokens, int num_heads,
                                const CudaRotary& rotary,
                                const CudaTokenSlots& slots,
                                const CudaKvCache& cache, int layer,
                                cudaStream_t stream);

// Rows of 16-byte units to be gathered; `from` and `to` do not overlap.
struct CudaGather {
  const void* from = nullptr;
  void* to = nullptr;
  int row_bytes = 0;  // a multiple of 16
};

// to[i] = from[rows[i]], of two buffers at once.
//   rows  [num_rows]  device
absl::Status CudaGatherRows(const int* rows, int num_rows, const CudaGather& a,
                            const CudaGather& b, cudaStream_t stream);

// Columns [0, num_cols) of w become independent numbers of a normal
// distribution around 0, functions of (seed, row, column) alone; columns past
// them stay as they are.
//   data  [num_rows, stride]  dtype  device
absl::Status CudaFillNormal(void* data, DType dtype, int num_rows, int num_cols,
                            int stride, float standard_deviation, uint64_t seed,
                            cudaStream_t stream);

}  // namespace espalier

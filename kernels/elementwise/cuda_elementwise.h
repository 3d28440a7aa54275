// The small kernels of a layer on the device, between matrix products and
// attention. A row's result depends on that row only, in a fixed order of
// operations, whatever else is in the call.
//
// Rows of activations are `width` numbers wide: the model's size, rounded up to
// a multiple of 8. Numbers past the size are zero and stay zero.
//
// Arithmetic is float32 in every dtype, rounded once on the way out. NaN and
// infinities propagate as in kernels/elementwise/elementwise.h.
//
// All calls enqueue on `stream` and return; they never allocate and may be
// captured.
// Errors: kInvalidArgument if a shape is not supported, kInternal if a launch
// is refused.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "kernels/cuda_matrix.h"

namespace espalier {

// The widest row of CudaRmsNorm: it is held in registers.
inline constexpr int kMaxCudaNormWidth = 16384;

// A norm of a model.
struct CudaNorm {
  const float* weight = nullptr;  // [width]  device, constant, zero padded
  int size = 0;                   // divisor of the mean
  int width = 0;                  // `size` rounded up to a multiple of 8
  float epsilon = 1e-6f;
  // The fields below, and a null weight (x is passed on), are supported by
  // cuda_residual.h only.
  // [width], as `weight`; with it this is a LayerNorm, else an RMSNorm.
  const float* bias = nullptr;
  bool replaces_x = false;  // x = norm(x) too

  bool is_plain() const {
    return weight != nullptr && bias == nullptr && !replaces_x;
  }
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
absl::Status CudaAddRmsNorm(float* x, const SplitKPartials& addends,
                            int num_rows, const CudaNorm& norm, DType dtype,
                            void* out, cudaStream_t stream);

// x = the tokens' rows of the embedding table, and normed = CudaRmsNorm(x).
// The forward pass's GridDependency::kBarrier (base/grid_dependency.h): kernels
// after it read what a step is made of (positions, tables, work lists, keys
// and values of earlier steps) early.
//   tokens  [num_tokens]         device, each in [0, embedding.num_rows)
//   x       [num_tokens, width]  f32              device
//   normed  [num_tokens, width]  embedding.dtype  device
// REQUIRES: embedding.num_cols == norm.width.
absl::Status CudaEmbed(const int* tokens, int num_tokens,
                       const CudaMatrix& embedding, const CudaNorm& norm,
                       float* x, void* normed, cudaStream_t stream);

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

// x = cap * tanh(x / cap), of `size` numbers.
//   x  [size]  f32  device, 16-byte aligned
// REQUIRES: cap > 0.
absl::Status CudaSoftCap(float cap, int64_t size, float* x,
                         cudaStream_t stream);

// x += bias, row by row.
//   x     [num_rows, size]  f32  device
//   bias  [size]            f32  device, constant
// REQUIRES: num_rows < 65536.
absl::Status CudaAddToRows(const float* bias, int num_rows, int size, float* x,
                           cudaStream_t stream);

// Fills columns [0, num_cols) of w with independent numbers of a normal
// distribution around 0, functions of (seed, row, column) only. Columns past
// them are not changed.
//   data  [num_rows, stride]  dtype  device
absl::Status CudaFillNormal(void* data, DType dtype, int num_rows, int num_cols,
                            int stride, float standard_deviation, uint64_t seed,
                            cudaStream_t stream);

}  // namespace espalier

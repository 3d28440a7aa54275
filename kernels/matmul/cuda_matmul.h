// Matrix products of activations with weights on the device: y = x * w^T with
// the next operation of the layer fused as an epilogue.
//
// Few rows are bound by reading the weights, many by arithmetic. A product runs
// on the first of these kernels that can run it and that the GPU's tuning
// (cuda_matmul_tuning.h) expects to be fastest:
//   cuda_skinny_matmul.h  up to 16 rows; up to 48 if a multiprocessor has at
//                         most 48 outputs and L2 is fast enough
//                         (SkinnyMatMulIsProfitable). Begins to read weights
//                         before the previous kernel of the stream has ended.
//   cuda_gate_up_gemm.h   gate and up projections of 17 to 160 rows that fill
//                         the device
//   cuda_small_gemm.h     more than 16 rows, in models whose matrices all have
//                         at most CudaMatMulLimits::kSmallMatrix weights of 16
//                         bits. Such models never load cuBLASLt.
//   cuda_blas_matmul.h    cuBLASLt: all other products, and f32
//
// Weights of e4m3 codes (CudaMatrix::fp8_scales) have kernels for few rows
// (cuda_fp8_skinny.h) and for more (cuda_fp8_gemm.h). For many rows, and for
// shapes that neither supports, they are first widened to bfloat16 in scratch,
// which changes no bits.
//
// Sums are float32 whatever the inputs; f32 inputs are multiplied as float32
// (no tf32).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "kernels/cuda_matrix.h"
#include "kernels/matmul/cuda_activate.h"

namespace espalier {

// The operation on the n x num_rows sums, and the shape and type of `out`.
enum class CudaEpilogue {
  kStore,       // [n, num_rows]      the weights' dtype
  kStoreFloat,  // [n, num_rows]      f32
  kAddFloat,    // [n, num_rows]      f32: out += sums (the residual stream)
  // [n, num_rows / 2] the weights' dtype: silu(gate) * up. Rows of w come in
  // blocks of 16: eight gates, then their eight ups. num_rows % 16 == 0.
  kSiluMul,
};

// Bounds of all products of a CudaMatMul.
struct CudaMatMulLimits {
  int max_rows = 0;     // bounds n
  int max_outputs = 0;  // bounds num_rows of kSiluMul products
  // Bounds num_rows * num_cols of a matrix whose weights are e4m3 codes.
  int64_t max_fp8_weights = 0;
  // num_rows * num_cols of the largest matrix, if all have 16-bit weights. Up
  // to kSmallMatrix, cuBLASLt is neither loaded nor given memory, and products
  // with larger matrices are refused.
  int64_t largest_matrix = std::numeric_limits<int64_t>::max();
  static constexpr int64_t kSmallMatrix = int64_t{2} << 20;
};

class CudaMatMul {
 public:
  // Takes scratch: 4 bytes for each output of at most 1024 rows, 32 MB for
  // cuBLASLt where it is needed, 2 bytes for each of max_fp8_weights.
  // Errors: kResourceExhausted; kFailedPrecondition without cuBLASLt, if it is
  // needed; kInternal if it fails.
  static absl::StatusOr<std::unique_ptr<CudaMatMul>> Create(
      const CudaDevice& device, const CudaMatMulLimits& limits);
  ~CudaMatMul();

  // out = epilogue(x * w^T).
  //   x  [num_rows, w.num_cols]  the weights' dtype, dense, 16-byte aligned
  // `out` is 16-byte aligned and overlaps neither x nor w.
  // For given shapes the same kernel runs every time: a row's result has the
  // same bits in every call with as many rows, at any place among them.
  // Enqueues on `stream`; never allocates device memory or waits, may be
  // captured. Calls share scratch: one stream at a time.
  // Errors: kInvalidArgument for shapes beyond the limits; kInternal if a
  // launch or cuBLASLt fails.
  absl::Status Run(const void* x, int num_rows, const CudaMatrix& w,
                   CudaEpilogue epilogue, void* out, cudaStream_t stream);

  // out = activation(x * w^T + bias), for activations that kSiluMul does not
  // cover (cuda_activate.h): a product, rounded to the weights' dtype, and a
  // kernel.
  //   out  [num_rows, w.num_rows / 2]  the weights' dtype; without a gate
  //        [num_rows, w.num_rows]
  // Shapes and errors as with kSiluMul; without a gate w.num_rows is a multiple
  // of 8, of any size.
  absl::Status RunActivated(const void* x, int num_rows, const CudaMatrix& w,
                            const CudaActivation& activation, void* out,
                            cudaStream_t stream);

  // residual += x * w^T, as kAddFloat, or returns split-K partials that the
  // next kernel adds to `residual`. Few rows fill the device only with split-K,
  // and reducing the partials as they are loaded is cheaper than a reduction
  // kernel.
  absl::StatusOr<SplitKPartials> RunSplitK(const void* x, int num_rows,
                                           const CudaMatrix& w, float* residual,
                                           cudaStream_t stream);

  // As RunSplitK without a residual: the sums are those of all partials, at
  // least one. A single partial is `out`.
  //   out  [num_rows, w.num_rows]  f32
  absl::StatusOr<SplitKPartials> RunPartials(const void* x, int num_rows,
                                             const CudaMatrix& w, float* out,
                                             cudaStream_t stream);

 private:
  class Impl;
  explicit CudaMatMul(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier

// Matrix products of activations with weights on the device: y = x * w^T with
// what follows it in a layer done on the way out.
//
// Few rows are bound by reading the weights, many by the multipliers: up to 16
// rows our own kernel streams the weights (cuda_skinny_matmul.h), beginning
// before the previous kernel of the stream has ended, and of matrices of up to
// 48 outputs a multiprocessor those of more, up to 48, where it can begin so
// and L2 is fast enough for them (SkinnyMatMulIsProfitable); above that, and
// for f32, cuBLASLt (cuda_blas_matmul.h). Gate and up projections of 17 to 160
// rows that fill the device are a kernel of our own too (cuda_gate_up_gemm.h).
// Models whose matrices all have at most CudaMatMulLimits::kSmallMatrix weights
// of 16 bits have our own kernel for more than 16 rows, too
// (cuda_small_gemm.h), and never load cuBLASLt.
//
// Weights of e4m3 codes (CudaMatrix::fp8_scales) have kernels of their own for
// few rows (cuda_fp8_skinny.h) and for more (cuda_fp8_gemm.h); for many rows,
// and where these do not fit, they become bfloat16 in scratch first, which is
// what they stand for.
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

// What becomes of the n x num_rows sums, and the shape and type of `out`.
enum class CudaEpilogue {
  kStore,       // [n, num_rows]      the weights' dtype
  kStoreFloat,  // [n, num_rows]      f32
  kAddFloat,    // [n, num_rows]      f32: out += sums (the residual stream)
  // [n, num_rows / 2] the weights' dtype: silu(gate) * up, where rows of w come
  // in blocks of 16: eight gates, then their eight ups. num_rows % 16 == 0.
  kSiluMul,
};

// What products are planned for.
struct CudaMatMulLimits {
  int max_rows = 0;     // bounds n
  int max_outputs = 0;  // bounds num_rows of kSiluMul products
  // Bounds num_rows * num_cols of a matrix whose weights are e4m3 codes.
  int64_t max_fp8_weights = 0;
  // num_rows * num_cols of the largest matrix, where all are of 16 bits. Up to
  // kSmallMatrix, cuBLASLt is neither loaded nor given memory, and products
  // with other matrices are refused.
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
  // For given shapes the same kernel runs every time: a row's result is the
  // same bits in every call with as many rows, at any place among them.
  // Enqueues on `stream`; never allocates device memory or waits, may be
  // captured. Calls share scratch: one stream at a time.
  // Errors: kInvalidArgument for shapes that were not planned for; kInternal if
  // a launch or cuBLASLt fails.
  absl::Status Run(const void* x, int num_rows, const CudaMatrix& w,
                   CudaEpilogue epilogue, void* out, cudaStream_t stream);

  // out = activation(x * w^T + bias), where kSiluMul is not all of it
  // (cuda_activate.h): a product, rounded to the weights' dtype, and a kernel.
  //   out  [num_rows, w.num_rows / 2]  the weights' dtype; without a gate
  //        [num_rows, w.num_rows]
  // Shapes and errors as with kSiluMul; w.num_rows % 8 == 0 without a gate.
  absl::Status RunActivated(const void* x, int num_rows, const CudaMatrix& w,
                            const CudaActivation& activation, void* out,
                            cudaStream_t stream);

  // residual += x * w^T, as with kAddFloat, or all of it is left to be added:
  // some tens of rows keep a whole device busy only if the inputs are divided
  // among its multiprocessors too, and the sums of the parts are cheaper to add
  // where they are read next than in a kernel of their own.
  absl::StatusOr<SplitKPartials> RunSplitK(const void* x, int num_rows,
                                           const CudaMatrix& w, float* residual,
                                           cudaStream_t stream);

  // The same where nothing is added to: the sums are those of all partials, at
  // least one. `out` holds it if it is one.
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

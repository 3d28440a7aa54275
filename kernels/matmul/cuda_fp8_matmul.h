// Products with e4m3 weights that need more than a kernel: sums in parts, and
// weights that are widened to bfloat16 in scratch.
//
// Thread safety: one thread, one stream at a time (scratch is shared).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "kernels/matmul/cuda_fp8_gemm.h"
#include "kernels/matmul/cuda_matmul.h"
#include "kernels/matmul/cuda_matmul_tuning.h"

namespace espalier {

class CudaFp8MatMul {
 public:
  // `gemm` is of this device. `max_weights` bounds the weights of a matrix.
  // Scratch takes two bytes for each.
  // Errors: kResourceExhausted; kInternal if the device refuses a kernel.
  static absl::StatusOr<std::unique_ptr<CudaFp8MatMul>> Create(
      const CudaDevice& device, const CudaFp8Gemm& gemm, int64_t max_weights);

  // kInvalidArgument if w has more weights than `max_weights`, or its number of
  // inputs is no multiple of 64.
  absl::Status Check(const CudaMatrix& w) const;

  // Returns the number of parts that RunParts should divide the inputs into: 1,
  // 2 or 4.
  int NumParts(int num_rows, const CudaMatrix& w) const;
  // out[p] = x * w^T over the p-th of `num_parts` equal ranges of the inputs.
  //   out  [num_parts, num_rows, w.num_rows]  f32
  // REQUIRES: num_parts is NumParts(num_rows, w), more than 1.
  absl::Status RunParts(const void* x, int num_rows, const CudaMatrix& w,
                        int num_parts, float* out, cudaStream_t stream) const;

  // Returns the weights as bfloat16, valid until the next call. They may still
  // be being written when the next kernel of the stream begins; it must call
  // GridDependencyWait before it reads them.
  // REQUIRES: Check(w) is OK.
  absl::StatusOr<CudaMatrix> Widen(const CudaMatrix& w, cudaStream_t stream);

 private:
  CudaFp8MatMul() = default;

  // Constant after Create.
  const CudaMatMulTuning* tuning_ = nullptr;
  int64_t max_weights_ = 0;
  CudaFp8Gemm gemm_;
  DeviceBuffer<uint16_t> widened_;  // [max_weights_]
};

}  // namespace espalier

// Gate and up projections of 17 to 160 rows with large weights. All rows are
// one tile, so that each weight goes once from memory through one
// multiprocessor. The kernel begins to read before the previous kernel of the
// stream has ended and applies silu(gate) * up to its sums; cuBLASLt can do
// neither.
//
// On an NVIDIA H200 a layer with 128 rows of 4096 inputs and 28,672 gate and up
// outputs takes 3 us less than with cuBLASLt and a kernel for silu(gate) * up.
// On an H100 160 rows take 91.6 us, as long as cuBLASLt takes for the product
// alone. 192 rows, which would fit, made steps slower.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "kernels/matmul/cuda_matmul.h"

namespace espalier {

// The kernel on one device, with the driver's tensor map encoder, looked up
// once. A value; a default one can implement no product.
class CudaGateUpGemm {
 public:
  CudaGateUpGemm() = default;
  // Prepares the kernel, if this device can run it.
  // Errors: kInternal if the device or its driver refuses.
  static absl::StatusOr<CudaGateUpGemm> Create(const CudaDevice& device);

  // True if Run supports these shapes: compute capability 9.0, a build for
  // sm_90a, a 16-bit dtype, up to 160 rows, w.num_rows and w.num_cols multiples
  // of 128.
  bool CanImplement(int num_rows, const CudaMatrix& w) const;
  // True if, in addition, other kernels are expected to be slower.
  bool IsProfitable(int num_rows, const CudaMatrix& w) const;

  // out = CudaEpilogue::kSiluMul of x * w^T, as CudaMatMul::Run.
  //   x    [num_rows, w.num_cols]      the weights' dtype
  //   out  [num_rows, w.num_rows / 2]  the weights' dtype
  // All 16-byte aligned. A row has the same bits among any number of rows.
  // Enqueues on `stream`; may be captured.
  // REQUIRES: CanImplement(num_rows, w), num_rows >= 1.
  // Errors: kInternal if a launch is refused.
  absl::Status Run(const void* x, int num_rows, const CudaMatrix& w, void* out,
                   cudaStream_t stream) const;

 private:
  int num_sms_ = 0;
  // The driver's function; null without a kernel.
  decltype(&cuTensorMapEncodeTiled) encode_ = nullptr;
};

}  // namespace espalier

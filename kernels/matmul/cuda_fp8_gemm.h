// y = x * w^T of e4m3 weights for more rows on Hopper. Tiles of weights go from
// memory through shared memory into registers, are widened to bfloat16 there
// and multiplied (wgmma) by all rows of a tile. Each weight is read and widened
// once for up to 128 rows.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "kernels/matmul/cuda_matmul.h"

namespace espalier {

// The division of a product among the multiprocessors.
struct Fp8Division {
  // Tiles of 64 outputs that a block computes: 1, 2 or 4. With one tile both
  // warpgroups compute the same outputs, each from half of the inputs
  // (sliced-K).
  int tiles = 2;
  // Parts of the inputs, each with its own sums (split-K): 1, 2 or 4.
  int parts = 1;
};

// The kernel on one device, with the number of multiprocessors and the driver's
// function that encodes tensor maps, looked up once. A value; a default one can
// implement no product. Needs no scratch.
class CudaFp8Gemm {
 public:
  CudaFp8Gemm() = default;
  // Prepares the kernel, if this device can run it.
  // Errors: kInternal if the device or its driver refuses.
  static absl::StatusOr<CudaFp8Gemm> Create(const CudaDevice& device);

  // True if Run supports these weights: compute capability 9.0, a build for
  // sm_90a, w.num_rows a multiple of 64 and w.num_cols of 128.
  bool CanImplement(const CudaMatrix& w) const;

  // Returns the division that Run should use; more than one part only if
  // `may_split`.
  Fp8Division Divide(int num_rows, const CudaMatrix& w, bool may_split) const;

  // out = epilogue(x * w^T), as CudaMatMul::Run; or, with several parts
  // (kStoreFloat), the sums of each part:
  //   out  [division.parts, num_rows, w.num_rows]  f32
  //   x    [num_rows, w.num_cols]                  bf16
  // REQUIRES: CanImplement(w), w.fp8_scales, num_rows >= 1, and a division that
  // fits w: w.num_rows is a multiple of 64 * tiles.
  // Errors: kInternal if a launch is refused.
  absl::Status Run(const void* x, int num_rows, const CudaMatrix& w,
                   CudaEpilogue epilogue, const Fp8Division& division,
                   void* out, cudaStream_t stream) const;

 private:
  int num_sms_ = 0;
  // The driver's function; null without a kernel.
  decltype(&cuTensorMapEncodeTiled) encode_ = nullptr;
};

}  // namespace espalier

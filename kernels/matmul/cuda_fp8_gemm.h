// y = x * w^T of e4m3 weights for more rows on Hopper: tiles of weights go from
// memory through shared memory into registers, where they become bfloat16, and
// are multiplied from there (wgmma) by all rows of a tile, so that each weight
// is read and widened once for up to 128 rows.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "kernels/matmul/cuda_matmul.h"

namespace espalier {

// How a product is divided among the multiprocessors.
struct Fp8Division {
  // Tiles of 64 outputs that a block computes: 1, 2 or 4. Of one, both of its
  // warpgroups compute the same outputs, each of half of the inputs (sliced-K).
  int tiles = 2;
  // Parts of the inputs, each with sums of its own (split-K): 1, 2 or 4.
  int parts = 1;
};

// The kernel on one device, with what was looked up once: the number of
// multiprocessors, and the driver's function that makes tensor maps. A value; a
// default one can implement no product. Needs no scratch.
class CudaFp8Gemm {
 public:
  CudaFp8Gemm() = default;
  // Readies the kernel, if this device can run it.
  // Errors: kInternal if the device or its driver refuses.
  static absl::StatusOr<CudaFp8Gemm> Create(const CudaDevice& device);

  // Whether Run takes these shapes: compute capability 9.0, in a build for
  // sm_90a, w.num_rows a multiple of 64 and w.num_cols of 128.
  bool CanImplement(const CudaMatrix& w) const;

  // How Run divides a product; more than one part only if `may_split`.
  Fp8Division Divide(int num_rows, const CudaMatrix& w, bool may_split) const;

  // out = epilogue(x * w^T), as CudaMatMul::Run; or, in several parts
  // (kStoreFloat), the sums of each:
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
  // The driver's; null where there is no kernel.
  decltype(&cuTensorMapEncodeTiled) encode_ = nullptr;
};

}  // namespace espalier

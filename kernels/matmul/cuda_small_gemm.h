// y = x * w^T of any number of rows, on every device of compute capability 8.0
// or more. For models whose matrices are all small, which then need no
// cuBLASLt: loading the library, its heuristics and its kernels takes longer
// than such a model's first thousand requests. The kernel itself takes 1 to 2.5
// times as long as cuBLASLt's (docs/performance.md).
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "kernels/matmul/cuda_matmul.h"

namespace espalier {

bool CanRunSmallGemm(const CudaDevice& device);

// Prepares the kernels, if this device can run them. Call once, before the
// first product.
absl::Status PrepareSmallGemm(const CudaDevice& device);

// Enqueues out = epilogue(x * w^T), with x and out as in CudaMatMul::Run. Needs
// no scratch; may be captured. A row has the same bits among any number of
// rows.
// Errors: kInternal if the launch is refused.
// REQUIRES: PrepareSmallGemm, CanRunSmallGemm, a 16-bit dtype, w.num_cols a
// multiple of 8, num_rows >= 1; for kSiluMul w.num_rows a multiple of 16.
absl::Status SmallGemm(const void* x, int num_rows, const CudaMatrix& w,
                       CudaEpilogue epilogue, void* out, cudaStream_t stream);

// out[p] = x * w^T over the p-th of `num_parts` equal runs of the inputs.
//   out  [num_parts, num_rows, w.num_rows]  f32
// REQUIRES: as SmallGemm; a run is a multiple of 8 inputs.
absl::Status SmallGemmParts(const void* x, int num_rows, const CudaMatrix& w,
                            int num_parts, float* out, cudaStream_t stream);

}  // namespace espalier

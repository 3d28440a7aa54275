// Conversion of e4m3 weights to bfloat16, row by row, for products with so many
// rows that converting once costs little.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/cuda_matrix.h"

namespace espalier {

// out = bf16(code * scale) of each weight.
//   out  [w.num_rows, w.num_cols]  bf16  device, row-major, 16-byte aligned
// Moves 3 bytes a weight. Enqueues on `stream`; never allocates, may be
// captured.
// REQUIRES: w.fp8_scales.
// Errors: kInternal if the launch is refused.
absl::Status CudaDequantizeFp8(const CudaMatrix& w, void* out,
                               cudaStream_t stream);

}  // namespace espalier

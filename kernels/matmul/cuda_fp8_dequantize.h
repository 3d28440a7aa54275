// Conversion of a matrix of e4m3 weights (fp8_order.h) to row-major bfloat16,
// before a product with so many rows of x that the conversion costs little.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/cuda_matrix.h"

namespace espalier {

// Computes out = bf16(code * scale) of each weight, with the scale of its row.
//   out  [w.num_rows, w.num_cols]  bf16  device, row-major, 16-byte aligned
// Moves 3 bytes a weight. Enqueues on `stream`; never allocates, may be
// captured.
// REQUIRES: w.fp8_scales.
// Errors: kInternal if the launch is refused.
absl::Status CudaDequantizeFp8(const CudaMatrix& w, void* out,
                               cudaStream_t stream);

}  // namespace espalier

// Random e4m3 weights, to measure shapes that no weights exist for.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda_matrix.h"

namespace espalier {

// Writes codes and scales of normally distributed numbers to the first
// `num_rows` rows and `num_cols` columns of w, and leaves the others. The same
// seed gives the same weights. Enqueues on `stream`.
// Errors: kInternal if the launch is refused.
absl::Status CudaFillFp8Normal(const CudaMatrix& w, int num_rows, int num_cols,
                               float standard_deviation, uint64_t seed,
                               cudaStream_t stream);

}  // namespace espalier

// The second half of selection for groups of more than kMaxNarrow candidates;
// a part of cuda_select.cu with kernels of its own.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/cuda_select_row.cuh"

namespace espalier::cuda_select {

// Enqueues what follows the reading of tiles. Errors: kInternal.
absl::Status MergeWideGroups(const Params& params, const CudaDevice& device,
                             cudaStream_t stream);

}  // namespace espalier::cuda_select

// Tail copies on the device.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "base/page_copy.h"
#include "kernels/kv_cache/cuda_kv_cache.h"

namespace espalier {

// Makes all tail copies of a step, over all layers, in one launch: the filled
// slots only, and their tokens. No copy's source is another's target.
//   copies      [max_copies]  device
//   num_copies  [1]           device
absl::Status CudaCopyTails(const PageCopy* copies, const int* num_copies,
                           int max_copies, const CudaKvCache& cache,
                           const CudaPageTokens& tokens,
                           const CudaDevice& device, cudaStream_t stream);

}  // namespace espalier

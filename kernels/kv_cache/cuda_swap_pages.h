// Transfers of pages between the cache and host memory: a page is gathered from
// all layers into one piece of device memory, its *record*, and scattered
// again. A copy over the link is then of whole records; pieces of single layers
// would be too small for its bandwidth.
//
//   record  [num_layers][2: keys, values][num_kv_heads][page_size][head_dim],
//           then the page's tokens, if they are kept; a multiple of 16 bytes
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "kernels/kv_cache/cuda_kv_cache.h"

namespace espalier {

int64_t CudaPageRecordBytes(const CudaKvCache& cache,
                            const CudaPageTokens& tokens);

// The pages of one call, passed to the kernel as an argument, so that the
// caller may change it as soon as the call returns.
struct CudaPageList {
  static constexpr int kMaxPages = 256;
  int count = 0;
  int pages[kMaxPages];
};

// Writes page list.pages[i] to record i, or record i to page list.pages[i],
// including the page's tokens if `tokens` has any.
//   records  [list.count, CudaPageRecordBytes]  device, aligned to 16 bytes
// Enqueues on `stream` and returns.
// Errors: kInvalidArgument if pages are no multiple of 16 bytes; kInternal if
// the launch is refused.
// REQUIRES: no page is in the list twice.
absl::Status CudaGatherPages(const CudaPageList& list, const CudaKvCache& cache,
                             const CudaPageTokens& tokens, std::byte* records,
                             const CudaDevice& device, cudaStream_t stream);
absl::Status CudaScatterPages(const CudaPageList& list,
                              const std::byte* records,
                              const CudaKvCache& cache,
                              const CudaPageTokens& tokens,
                              const CudaDevice& device, cudaStream_t stream);

}  // namespace espalier

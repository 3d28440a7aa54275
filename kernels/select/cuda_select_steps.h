// The steps of CudaSelect, each with kernels of its own: what cuda_select.cu
// enqueues one after the other. Errors of all: kInternal if a launch is
// refused.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "kernels/select/cuda_select_row.cuh"

namespace espalier::cuda_select {

// Of a row: Params::tiles.
inline int NumTiles(const CudaSelectInputs& inputs) {
  return cuda_logits::NumTiles(inputs.vocab_size);
}

// The whole selection in one launch, where there are few groups and no edits
// (cuda_select_cluster.cu). False, and nothing is enqueued, if that cannot be
// or would not pay.
absl::StatusOr<bool> SelectInClusters(const Params& params,
                                      const CudaDevice& device,
                                      cudaStream_t stream);

// Reads all logits once and leaves what tiles come to (cuda_select_read.cu).
absl::Status ReadAllTiles(const Params& params, const CudaDevice& device,
                          cudaStream_t stream);

// Chooses for groups of up to kMaxNarrow candidates (cuda_select_merge.cu).
absl::Status MergeNarrowGroups(const Params& params, const CudaDevice& device,
                               cudaStream_t stream);

// Chooses for groups of more than kMaxNarrow candidates (cuda_select_wide.cu).
absl::Status MergeWideGroups(const Params& params, const CudaDevice& device,
                             cudaStream_t stream);

// The last part of that: cuts what was gathered to the best, in their order
// (cuda_select_wide_choose.cu).
absl::Status ChooseWideGroups(const Params& params, cudaStream_t stream);

}  // namespace espalier::cuda_select

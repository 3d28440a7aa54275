// The steps of CudaSelect, which cuda_select.cu enqueues one after the other.
// Each has its own kernels. Errors of all: kInternal if a launch is refused.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "kernels/select/cuda_select_row.cuh"

namespace espalier::cuda_select {

// Tiles of a row: Params::tiles.
inline int NumTiles(const CudaSelectInputs& inputs) {
  return cuda_logits::NumTiles(inputs.vocab_size);
}

// Enqueues the whole selection as one launch, for few groups without edits
// (cuda_select_cluster.cu). Returns false and enqueues nothing if that is not
// possible or not profitable.
absl::StatusOr<bool> SelectInClusters(const Params& params,
                                      const CudaDevice& device,
                                      cudaStream_t stream);

// Reads all logits once and writes the tiles' statistics (cuda_select_read.cu).
absl::Status ReadAllTiles(const Params& params, const CudaDevice& device,
                          cudaStream_t stream);

// Chooses for groups of up to kMaxNarrow candidates (cuda_select_merge.cu).
absl::Status MergeNarrowGroups(const Params& params, const CudaDevice& device,
                               cudaStream_t stream);

// Chooses for groups of more than kMaxNarrow candidates (cuda_select_wide.cu).
absl::Status MergeWideGroups(const Params& params, const CudaDevice& device,
                             cudaStream_t stream);

// The last step of MergeWideGroups: prunes the gathered entries to the best, in
// order (cuda_select_wide_choose.cu).
absl::Status ChooseWideGroups(const Params& params, cudaStream_t stream);

}  // namespace espalier::cuda_select

// Gumbel top-k on the device: kernels/gumbel_topk/gumbel_topk.h for all such
// rows of a step. The noise is that of the host, in double; a token is ranked
// by value + noise rounded to float32. The implementation favours correctness:
// each row has a row of scratch, is read three times and written twice, in
// eight launches, or more if a row needs more than kMaxNarrowCudaSelect
// candidates. Rows without noise are not read.
//
// All inputs are in device memory, including the number of groups, so that a
// captured graph serves any composition of a batch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "kernels/gumbel_topk/cuda_gumbel_topk_layout.h"
#include "kernels/gumbel_topk/gumbel_topk.h"
#include "kernels/sample/cuda_sample.h"
#include "kernels/select/cuda_select.h"

namespace espalier {

// The noise of a row.
struct CudaGumbelRow {
  ScoreDomain domain = ScoreDomain::kLogProbs;
  uint32_t rank = 0;      // rank of the beam in its group
  uint32_t position = 0;  // tokens that it has generated
};

struct CudaGumbelTopKInputs {
  // Host values and device arrays as in CudaSelect: a row with noise is a group
  // of its own there, all others have num_candidates 0. Cumulative
  // log-probabilities only decide which rows are alive; a group's domain is
  // ignored.
  CudaSelectInputs select;

  // Device memory.
  const CudaGumbelRow* rows = nullptr;     // [num_rows]
  const int* row_params = nullptr;         // [num_rows]; -1: no noise
  const SamplingParams* params = nullptr;  // indexed by row_params
};

// Returns the scratch bytes of CudaGumbelTopK, to be aligned to 256.
size_t CudaGumbelTopKScratchBytes(const CudaGumbelTopKInputs& inputs);

// Writes the best tokens of each row with noise, at its group's
// first_candidate, by falling noisy score, and their number. A candidate has
// beam 0, and its cum_log_prob is the token's value. A row with a NaN gives
// kNotANumber only. Enqueues on `stream` and returns; never allocates, may be
// captured.
// REQUIRES: all inputs but the logits are complete when the kernel before this
// one starts.
// Errors: as CudaSelect's and CudaSample's.
absl::Status CudaGumbelTopK(const CudaGumbelTopKInputs& inputs,
                            const CudaSelectOutputs& outputs, void* scratch,
                            const CudaDevice& device, cudaStream_t stream);

}  // namespace espalier

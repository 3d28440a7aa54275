// Gumbel top-k on the device: what kernels/gumbel_topk/gumbel_topk.h does on
// the host, for all such rows of a step. The noise is that of the host, in
// double; the rank of a token is by value + noise rounded to float32. Correct
// first: it reads and writes a row of scratch for every row, three readings and
// two writings in all, in eight launches or, where a row asks for more than
// kMaxNarrowCudaSelect candidates, more; rows without noise are not
// read.
//
// Everything is in device memory, also the number of groups, so that a captured
// graph serves any composition of a batch.
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

// How a row gets noise.
struct CudaGumbelRow {
  ScoreDomain domain = ScoreDomain::kLogProbs;
  uint32_t rank = 0;      // of the beam in its group
  uint32_t position = 0;  // tokens that it has generated
};

struct CudaGumbelTopKInputs {
  // Host values and device arrays as in CudaSelect: a row with noise is a group
  // of its own there, all others have num_candidates 0. Sums of
  // log-probabilities only say which rows are alive; a group's domain is not
  // looked at.
  CudaSelectInputs select;

  // Device memory.
  const CudaGumbelRow* rows = nullptr;     // [num_rows]
  const int* row_params = nullptr;         // [num_rows]; -1: no noise
  const SamplingParams* params = nullptr;  // what row_params points into
};

// Bytes of scratch that CudaGumbelTopK needs, aligned to 256.
size_t CudaGumbelTopKScratchBytes(const CudaGumbelTopKInputs& inputs);

// Writes each such row's best tokens, at its group's first_candidate, by
// falling noisy score, and how many there are. Of a candidate, beam is 0
// and cum_log_prob the token's value alone. A row with a NaN gives kNotANumber
// alone. Enqueues on `stream` and returns; never allocates, may be captured.
// REQUIRES: all inputs but the logits are complete when the kernel before this
// one starts.
// Errors: as CudaSelect's and CudaSample's.
absl::Status CudaGumbelTopK(const CudaGumbelTopKInputs& inputs,
                            const CudaSelectOutputs& outputs, void* scratch,
                            const CudaDevice& device, cudaStream_t stream);

}  // namespace espalier

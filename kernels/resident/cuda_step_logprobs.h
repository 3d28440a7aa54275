// Log-probabilities within a step: the two small kernels around CudaLogprobs
// (cuda_logprobs.h) and a CudaSelect of the best tokens of rows, for tokens
// that the step itself chooses.
//
//   selection, sampling ─> CudaGatherLogprobQueries ─> CudaLogprobs ─┐
//                                       CudaSelect (best tokens) ├─> report
//
// The host appends queries for rows whose next token is known. All memory is
// device memory unless it says otherwise; everything may be captured, and
// nothing here allocates or waits.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "kernels/logprobs/cuda_logprobs.h"
#include "kernels/resident/cuda_resident.h"
#include "kernels/select/cuda_select.h"

namespace espalier {

// A group with queries for its candidates: asked[first_asked + i] is for its
// i-th candidate.
struct CudaLogprobGroup {
  int first_row = 0;  // row of logits, as in CudaSelectGroup
  int num_rows = 1;
  int first_candidate = 0;
  int num_candidates = 1;  // a bound: queries of missing candidates are unused
  int first_asked = 0;
};

// Numbers of queries in a step.
struct CudaLogprobCounts {
  int num_asking_groups = 0;
  int num_logprob_queries = 0;  // the groups', then the host's
  int num_best_groups = 0;      // rows that need best tokens
  int num_best = 0;             // places of these tokens
};

struct CudaStepLogprobs {
  // Written by the host.
  const CudaLogprobCounts* counts = nullptr;        // [1]
  const CudaLogprobGroup* asking_groups = nullptr;  // [num_asking_groups]
  const CudaSelectGroup* best_groups = nullptr;     // [num_best_groups]
  const int* best_row_groups = nullptr;             // by row; -1: none
  const float* zeros = nullptr;                     // by row: all 0
  // Written by the step.
  CudaLogprobQuery* asked = nullptr;  // [num_logprob_queries]
  CudaTokenScore* scores = nullptr;   // [num_logprob_queries]
  Candidate* best = nullptr;          // [num_best]  cum is the log_prob
  int* num_found = nullptr;           // [num_best_groups]  best tokens found
};

// The results for the host: a ring in pinned memory, with as many reports as
// CudaReportRing.
struct CudaLogprobRing {
  CudaTokenScore* scores = nullptr;  // [num_reports, max_asked]
  Candidate* best = nullptr;         // [num_reports, max_best]
  int* num_found = nullptr;          // [num_reports, max_logits_rows]
  int num_reports = 1;
  int max_asked = 0;
  int max_best = 0;
  int max_logits_rows = 0;
};

// Writes the queries of groups for their candidates. The query of a missing
// candidate, or of one without a token, is for token 0 of one of the group's
// rows. `max_groups` >= 1 is a bound of num_asking_groups.
absl::Status CudaGatherLogprobQueries(const CudaStepLogprobs& log_probs,
                                      const Candidate* candidates,
                                      int vocab_size, int max_groups,
                                      cudaStream_t stream);

// Writes scores and best tokens into the step's report. Runs before
// CudaUpdateBeams, which ends the step.
absl::Status CudaReportLogprobs(const CudaStepLogprobs& log_probs,
                                const CudaStepClock* clock,
                                const CudaLogprobRing& reports,
                                cudaStream_t stream);

}  // namespace espalier

// Log-probabilities within a step: the two small kernels around CudaLogprobs
// (cuda_logprobs.h) and a CudaSelect of the best tokens of rows, when the
// tokens that are asked about are what the step itself chooses.
//
//   selection, sampling ─> CudaGatherLogprobQueries ─> CudaLogprobs ─┐
//                                       CudaSelect (best tokens) ├─> report
//
// What the host asks of rows whose next token it knows, it writes after what
// groups ask. All memory is device memory unless it says otherwise; everything
// may be captured, and nothing here allocates or waits.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "kernels/logprobs/cuda_logprobs.h"
#include "kernels/resident/cuda_resident.h"
#include "kernels/select/cuda_select.h"

namespace espalier {

// A group that wants to know of its candidates: asked[first_asked + i] is about
// its i-th candidate.
struct CudaLogprobGroup {
  int first_row = 0;  // of logits, as in CudaSelectGroup
  int num_rows = 1;
  int first_candidate = 0;
  int num_candidates = 1;  // there may be fewer: what is asked then is nothing
  int first_asked = 0;
};

// What a step asks for.
struct CudaLogprobCounts {
  int num_asking_groups = 0;
  int num_logprob_queries = 0;  // of groups, and of the host after them
  int num_best_groups = 0;      // rows whose best tokens are wanted
  int num_best = 0;             // places of these tokens
};

struct CudaStepLogprobs {
  // As the host writes it.
  const CudaLogprobCounts* counts = nullptr;        // [1]
  const CudaLogprobGroup* asking_groups = nullptr;  // [num_asking_groups]
  const CudaSelectGroup* best_groups = nullptr;     // [num_best_groups]
  const int* best_row_groups = nullptr;             // by row; -1: none
  const float* zeros = nullptr;                     // by row: all 0
  // As the step writes it.
  CudaLogprobQuery* asked = nullptr;  // [num_logprob_queries]
  CudaTokenScore* scores = nullptr;   // [num_logprob_queries]
  Candidate* best = nullptr;          // [num_best]  cum is the log_prob
  int* num_found = nullptr;  // [num_best_groups]  best tokens there are
};

// What the host learns of it: a ring in pinned memory, as CudaReportRing, of as
// many reports.
struct CudaLogprobRing {
  CudaTokenScore* scores = nullptr;  // [num_reports, max_asked]
  Candidate* best = nullptr;         // [num_reports, max_best]
  int* num_found = nullptr;          // [num_reports, max_logits_rows]
  int num_reports = 1;
  int max_asked = 0;
  int max_best = 0;
  int max_logits_rows = 0;
};

// Writes what groups ask about their candidates. A candidate that is none, or
// has no token, asks about token 0 of one of the group's rows.
// `max_groups` >= 1 is a bound of num_asking_groups.
absl::Status CudaGatherLogprobQueries(const CudaStepLogprobs& log_probs,
                                      const Candidate* candidates,
                                      int vocab_size, int max_groups,
                                      cudaStream_t stream);

// Writes scores and best tokens into the step's report; before
// CudaUpdateBeams, whose end is the step's.
absl::Status CudaReportLogprobs(const CudaStepLogprobs& log_probs,
                                const CudaStepClock* clock,
                                const CudaLogprobRing& reports,
                                cudaStream_t stream);

}  // namespace espalier

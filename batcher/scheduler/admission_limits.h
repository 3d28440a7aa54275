// AdmissionLimits: the worst case of a request, and the limits that it must
// fit: alone, in the pool and in the executor's limits (StepLimits), or it is
// refused when it arrives; and beside other requests, in the limits of a step,
// before it runs. It knows no requests: admission.h has the queue and chooses.
//
//   const RequestNeeds needs = limits.NeedsOf(prepared);
//   RETURN_IF_ERROR(limits.CheckFits(prepared, needs));
//   ...
//   if (limits.CanAdmit(needs, running, num_running)) ...
//
// Constant after construction. Belongs to its scheduler's strand, because it
// reads the sizes of the pool.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/model_description.h"
#include "batcher/scheduler/scheduler_options.h"
#include "batcher/scheduler/too_few_pages.h"
#include "beam/prepared_request.h"
#include "pages/page_pool.h"
#include "request/request.h"

namespace espalier {

// Worst case of a request: pages and scores of attention at any time, other
// resources in one step.
struct RequestNeeds {
  int64_t num_pages = 0;
  int64_t num_sequences = 0;   // live ones: rows
  int64_t num_widest = 0;      // largest num_sequences of several requests
  int64_t num_edits = 0;       // score edits
  int64_t num_candidates = 0;  // in its result
  int64_t num_best = 0;        // tokens reported beside candidates
  int64_t num_attention_scores = 0;  // in its result

  // Adds up the needs of both.
  RequestNeeds& operator+=(const RequestNeeds& other);
};

class AdmissionLimits {
 public:
  // `pool` outlives this.
  AdmissionLimits(const ModelDescription& model,
                  const SchedulerOptions& options, const PagePool* pool);

  // Largest number of tokens fed in one step, within the limits.
  int max_step_tokens() const { return max_step_tokens_; }

  RequestNeeds NeedsOf(const PreparedRequest& prepared) const;
  // Lowers its draft length to fit the limits (prepared_request.h).
  void FitDrafts(PreparedRequest* prepared) const;

  // Errors: kResourceExhausted, marked as permanent, if the request does not
  // fit even alone, with its needs, the limits, and the options that cause
  // them; with kTooFewPages if it lacks pages.
  absl::Status CheckFits(const PreparedRequest& prepared,
                         const RequestNeeds& needs) const;

  // Returns the pages that a new request takes until each of its sequences has
  // begun its own page.
  int64_t NumPagesToStart(const PreparedRequest& prepared) const;

  // True if `next` may run beside `num_running` requests with needs `running`,
  // by the limits of a step; ignores pages. The sum of all sequences must be at
  // most max(max_step_tokens, those of the widest request + max(max_step_tokens
  // / 4, 1)), so that a wide request does not exclude all others, and at most
  // the executor's max_beams.
  bool CanAdmit(const RequestNeeds& next, const RequestNeeds& running,
                int num_running) const;

 private:
  const StepLimits limits_;
  const int max_step_tokens_;
  const int max_running_;
  const int vocab_size_;
  const PagePool* const pool_;
};

}  // namespace espalier

// SavingPolicy: which pages of a preempted group are worth host memory. A page
// with n tokens comes back in the time that its bytes take over the link, or in
// that of computing n tokens; it is saved if the first is shorter:
//
//   page_bytes / host_bandwidth  <  n * (time to feed a token)
//
// The bandwidth is what the executor has measured. The time of a token is that
// of steps that fed more prompt tokens than others (those of beams, of groups
// that run ahead, too, and of drafts), all of it divided by all their tokens,
// the last ones weighing most: a step of many tokens, as resuming takes, costs
// less a token than one of few. On a GPU pages are saved and loaded beside
// steps, and that is not in it; the CPU copies them as a part of the step.
// Until both figures are there every page is saved.
//
// Belongs to its scheduler's strand.
#pragma once

#include "absl/time/time.h"
#include "batcher/scheduler/plans_in_flight.h"
#include "batcher/scheduler/scheduler_options.h"
#include "exec_request/model_description.h"

namespace espalier {

class SavingPolicy {
 public:
  SavingPolicy(const ModelDescription& model, PreemptedPages preempted_pages);

  // The answer to `plan`.
  void AddStep(const PlanInFlight& plan, absl::Duration forward_time);

  // A page of fewer tokens is dropped; page_size + 1: all are.
  int min_tokens() const;

 private:
  const PreemptedPages preempted_pages_;
  const int page_size_;
  const double seconds_per_page_;  // to load it; 0: not known
  double seconds_ = 0;             // of the steps that count
  double num_tokens_ = 0;          // and what they fed
};

}  // namespace espalier

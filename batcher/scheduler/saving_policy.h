// SavingPolicy: chooses which pages of a preempted group are saved to host
// memory. A page with n tokens can be loaded over the link or recomputed; it is
// saved if loading takes less time:
//
//   page_bytes / host_bandwidth  <  n * (time to feed a token)
//
// The executor has measured the bandwidth. The time of a token is measured over
// steps that fed more prompt tokens than other tokens (tokens of beams, even of
// groups that run ahead, and of drafts): their total time divided by all their
// tokens, with recent steps weighted most. These steps resemble resuming,
// because a token costs less in a step of many tokens. On a GPU, pages are
// saved and loaded in parallel to steps, which the formula ignores; the CPU
// copies them within the step. Until both values are known every page is saved.
//
// Belongs to its scheduler's strand.
#pragma once

#include "absl/time/time.h"
#include "base/model_description.h"
#include "batcher/scheduler/plans_in_flight.h"
#include "batcher/scheduler/scheduler_options.h"

namespace espalier {

class SavingPolicy {
 public:
  SavingPolicy(const ModelDescription& model, PreemptedPages preempted_pages);

  // Records the result of `plan`.
  void AddStep(const PlanInFlight& plan, absl::Duration forward_time);

  // Pages with fewer tokens are dropped; page_size + 1: all pages are dropped.
  int min_tokens() const;

 private:
  const PreemptedPages preempted_pages_;
  const int page_size_;
  const double seconds_per_page_;  // to load it; 0: unknown
  double seconds_ = 0;             // duration of the steps that count
  double num_tokens_ = 0;          // fed in these steps
};

}  // namespace espalier

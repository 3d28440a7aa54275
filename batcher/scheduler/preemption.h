// Preemption: makes room in the page pool before a plan is written. While the
// plan lacks pages, the running group with the last turn is preempted as a
// whole; the saving policy decides which of its pages go to host memory. Groups
// are visited in order of their turns, so a group is preempted only if those
// before it and itself need more pages than there are.
//
// It owns the saves of the plan being written, until that plan is sent
// (OnPlanOut) or its saves are dropped (DropSaves). It plans no rows.
//
// Invariants: after MakeRoom, the available pages suffice for the plan, or no
// group runs. A group whose pages are being saved learns the outcome exactly
// once: at the result of its plan, or when the saves are dropped.
//
// Belongs to its scheduler's strand.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "base/model_description.h"
#include "batcher/scheduler/plans_in_flight.h"
#include "batcher/scheduler/running_groups.h"
#include "batcher/scheduler/saving_policy.h"
#include "batcher/scheduler/scheduler_options.h"
#include "batcher/scheduler/timed_stats.h"
#include "exec_request/step_plan.h"
#include "pages/host_pool.h"
#include "pages/page_pool.h"

namespace espalier {

// Pages that a plan takes for the groups that run already.
struct PlanRoom {
  int64_t num_pages = 0;
  int64_t num_prefill_pages = 0;  // included: pages for prefill
  bool was_made = false;          // some group was preempted
};

class Preemption {
 public:
  // `max_step_tokens`: of a group's prompt in one step. All pointers outlive
  // this.
  Preemption(const ModelDescription& model, const SchedulerOptions& options,
             int max_step_tokens, const PagePool* pool, HostPool* host_pool,
             RunningGroups* groups, TimedStats* counts);

  // Returns the pages that the group takes in the plan being written.
  // `decodes`: groups that have been fed their prompts run in it.
  int64_t NumPagesNow(const RunningGroup& running, bool decodes) const;
  // Preempts groups until all pages of NumPagesNow are available, and shares
  // prefixes with groups that feed their prompts. Throws std::bad_alloc.
  PlanRoom MakeRoom(bool decodes, StepPlan* plan);

  // Requests whose pages the plan being written saves.
  std::span<const RequestId> saved() const { return saved_; }
  // Removes the saves from the plan being written: their tokens are recomputed.
  void DropSaves(StepPlan* plan);
  void OnPlanOut() { saved_.clear(); }

  // Records if the plan has saved the pages of its requests.
  void AnswerSaves(const PlanInFlight& plan, bool are_saved);
  // Records the time of a step, for the saving policy.
  void AddStep(const PlanInFlight& plan, absl::Duration forward_time) {
    saving_policy_.AddStep(plan, forward_time);
  }

 private:
  void Preempt(RunningGroup& running, StepPlan* plan);

  const int max_step_tokens_;
  const PagePool* const pool_;
  HostPool* const host_pool_;
  RunningGroups* const groups_;
  TimedStats* const counts_;
  SavingPolicy saving_policy_;
  std::vector<RequestId> saved_;
};

}  // namespace espalier

// PlansInFlight: a scheduler's records of the plans that an executor has, and
// the statistics of their steps.
//
// Results come in the order of plans, so the oldest plan is the one that runs
// now. It is counted when all earlier results have arrived, because they decide
// what a plan that runs ahead of them feeds.
//
// Belongs to its scheduler's strand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "batcher/scheduler/scheduler_stats.h"
#include "exec_request/step_plan.h"

namespace espalier {

// Record of one plan.
struct PlanInFlight {
  std::vector<RequestId> requests;  // that run in it
  std::vector<RequestId> saved;     // whose pages it saves on the host
  // Requests of the selections and continuations, in the plan's order, unless
  // they equal `requests`.
  std::vector<RequestId> asked_of;
  bool asks_all = false;      // asked() is `requests`
  size_t num_selections = 0;  // in asked(); the rest are continuations
  std::vector<std::pair<RequestId, size_t>> scored;  // prompt tokens scored
  // Sequences drafted for, which a later plan verifies.
  std::vector<std::pair<RequestId, size_t>> drafted;
  bool drafts = false;  // by a draft model, for this plan or for a later one
  // Tokens fed, drafts included, if the plan only decodes and has no
  // continuations; otherwise 0. Rows ahead count for samples that have ended.
  int num_decode_only_tokens = 0;
  bool only_drafts = false;  // it feeds nothing
  // Time of planning if no other plan ran; otherwise -1. Nanoseconds.
  int64_t planned_alone_ns = -1;
  // All of `requests` decode without drafts: each has exactly one result.
  bool only_decodes = false;
  // As in StepCounts, if the plan names all pages; otherwise -1.
  int64_t num_unshared_pages = -1;
  int num_page_copies = 0;
  int64_t num_tokens = 0;         // fed; a continuation counts its slots
  int64_t num_prompt_tokens = 0;  // in num_tokens; with tokens fed again
  // Decoding sequences, without those of continuations. A beam may have several
  // rows, for its paths.
  int64_t num_decode_sequences = 0;
  int64_t num_draft_pages = 0;  // taken by its drafts

  // Requests of the selections and continuations, in the plan's order.
  std::span<const RequestId> asked() const {
    return asks_all ? requests : asked_of;
  }
  // Requests of groups that run ahead of a result.
  std::span<const RequestId> continuations() const {
    return asked().subspan(num_selections);
  }
};

// Errors: kInternal unless `result` matches every selection, continuation and
// scoring of the plan, in its order.
absl::Status ValidateStepResult(const PlanInFlight& plan,
                                const StepResult& result);

class PlansInFlight {
 public:
  bool empty() const { return plans_.empty(); }

  // Adds `plan`, in which `requests` run, and which saves pages of `saved`. The
  // caller sets the counts of fed tokens in the returned record. Throws
  // std::bad_alloc, having added nothing.
  PlanInFlight& Push(const StepPlan& plan, std::vector<RequestId> requests,
                     std::span<const RequestId> saved = {});
  // REQUIRES: !empty().
  const PlanInFlight& oldest() const { return plans_.front(); }
  PlanInFlight TakeOldest();

  // Returns the pages that drafts of these plans took. Results release them,
  // except those of accepted tokens.
  int64_t num_draft_pages() const {
    int64_t total = 0;
    for (const PlanInFlight& plan : plans_) total += plan.num_draft_pages;
    return total;
  }

 private:
  std::deque<PlanInFlight> plans_;  // oldest first
};

// Counts of one step.
struct StepCounts {
  int64_t num_pages = 0;           // held
  int64_t num_unshared_pages = 0;  // without sharing between beams
  int num_tail_copies = 0;
  int64_t num_rows_ahead = 0;  // fed by groups that run ahead
};

void AddStep(const StepCounts& step, SchedulerStats* stats);

}  // namespace espalier

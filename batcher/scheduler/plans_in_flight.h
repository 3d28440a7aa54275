// PlansInFlight: what a scheduler remembers of the plans that an executor has
// and has not answered, and the statistics of their steps.
//
// Answers come in the order of plans, so the oldest plan is the one that runs
// now. It is counted when all answers before it are there: they decide what a
// plan ahead of them feeds.
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

// What is remembered of one plan.
struct PlanInFlight {
  std::vector<RequestId> requests;  // that run in it
  std::vector<RequestId> saved;     // whose pages it saves on the host
  // For answers, in the plan's order, unless they are `requests`.
  std::vector<RequestId> asked_of;
  bool asks_all = false;      // asked() is `requests`
  size_t num_selections = 0;  // of asked(); the rest are continuations
  std::vector<std::pair<RequestId, size_t>> scored;   // tokens of whose prompt
  std::vector<std::pair<RequestId, size_t>> drafted;  // sequences of whom
  // Of a plan that decodes and does nothing else, otherwise 0: the tokens that
  // it feeds, drafts included.
  int num_decode_only_tokens = 0;
  bool only_drafts = false;  // it feeds nothing
  // When it was planned, if no other ran then; otherwise -1. Nanoseconds.
  int64_t planned_alone_ns = -1;
  // All of `requests` decode without drafts: each has one answer, and no more.
  bool only_decodes = false;
  // Those of StepCounts, where the plan names them all; otherwise -1.
  int64_t num_unshared_pages = -1;
  int num_page_copies = 0;
  int64_t num_tokens = 0;  // fed, of continuations as many as there are slots
  int64_t num_prompt_tokens = 0;  // of these, what is fed again among them
  // Sequences that decode, without those of plain continuations: several rows
  // may feed paths of one beam.
  int64_t num_decode_sequences = 0;
  int64_t num_draft_pages = 0;  // that its drafts took

  // For answers, in the plan's order.
  std::span<const RequestId> asked() const {
    return asks_all ? requests : asked_of;
  }
  // Of groups that are planned ahead of an answer.
  std::span<const RequestId> continuations() const {
    return asked().subspan(num_selections);
  }
};

// Errors: kInternal unless `result` answers every selection, continuation and
// scoring of the plan, in its order.
absl::Status ValidateStepResult(const PlanInFlight& plan,
                                const StepResult& result);

class PlansInFlight {
 public:
  bool empty() const { return plans_.empty(); }

  // Adds `plan`, in which `requests` run, and which saves pages of `saved`.
  // Throws std::bad_alloc, and has added nothing then. What it feeds is the
  // caller's to say, of the result.
  PlanInFlight& Push(const StepPlan& plan, std::vector<RequestId> requests,
                     std::span<const RequestId> saved = {});
  // REQUIRES: !empty().
  const PlanInFlight& oldest() const { return plans_.front(); }
  PlanInFlight TakeOldest();

  // That drafts of these plans took: given back with the answers, but for what
  // these accept.
  int64_t num_draft_pages() const {
    int64_t total = 0;
    for (const PlanInFlight& plan : plans_) total += plan.num_draft_pages;
    return total;
  }

 private:
  std::deque<PlanInFlight> plans_;  // oldest first
};

// What one step counts.
struct StepCounts {
  int64_t num_pages = 0;           // held
  int64_t num_unshared_pages = 0;  // if every beam had pages of its own
  int num_tail_copies = 0;
  int64_t num_rows_ahead = 0;  // fed by groups that were planned ahead
};

void AddStep(const StepCounts& step, SchedulerStats* stats);

}  // namespace espalier

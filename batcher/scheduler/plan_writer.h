// PlanWriter: writes the work of single groups into a plan, and keeps the room
// that is left in its step: the budget. It does not choose the groups
// (step_planner.h) nor make room for their pages (preemption.h).
//
// From Begin until Remember or Abandon it holds what will be remembered of the
// plan: the requests that run in it, and the counts of what it feeds.
//
// Invariants: a group is written only within the budget, except that a source
// is fed at once, and that the first beams of a step may exceed its tokens.
// After Remember or Abandon it holds nothing of that plan but its sizes.
//
// Belongs to its scheduler's strand.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "base/model_description.h"
#include "batcher/scheduler/plan_sizes.h"
#include "batcher/scheduler/plans_in_flight.h"
#include "batcher/scheduler/running_groups.h"
#include "batcher/scheduler/timed_stats.h"
#include "beam/drafts/group_drafts.h"
#include "beam/sequence_group.h"
#include "exec_request/step_plan.h"
#include "pages/page_pool.h"

namespace espalier {

// Thrown if a plan cannot be written. The plan must be abandoned.
struct PlanError {
  absl::Status status;
};

// Remaining room of a step.
struct StepBudget {
  int num_tokens = 0;
  int num_logits = 0;  // rows
  int num_prefill_rows = 0;
  DraftRoom drafts = {};

  bool is_used_up() const { return num_tokens < 1 || num_logits < 1; }

  // Subtract: drafts of one group that the step verifies, whose tokens are
  // subtracted already; and drafts that it requests of a draft model for later
  // verification, each token with `num_logits_per_token` rows.
  void TakeDrafts(int num_drafted, int num_draft_logits, int64_t num_pages);
  void TakeRequested(std::span<const DraftSequence> requested,
                     int num_logits_per_token, int64_t num_pages);
};

class PlanWriter {
 public:
  // All pointers outlive this.
  PlanWriter(const ModelDescription& model, int max_step_tokens,
             const PagePool* pool, RunningGroups* groups, TimedStats* counts);

  // Reserves memory for a plan like the last one. Throws std::bad_alloc.
  void Begin(StepPlan* plan);
  // Begins the step of the plan: nothing of its budget is used, and there is no
  // room for drafts.
  void BeginStep(StepPlan* plan);
  void SetDraftRoom(const DraftRoom& room) { budget_.drafts = room; }

  const StepBudget& budget() const { return budget_; }
  // True if the budget has room for the group's next rows.
  bool HasRoomFor(const SequenceGroup& group) const;
  // Returns the rows of logits that must be left for the next `num_tokens` of a
  // group that feeds its prompt.
  int NumAskedIn(const SequenceGroup& group, int num_tokens) const;
  // Limits one group's drafts to tokens that have rows of logits.
  static DraftRoom RoomOf(const SequenceGroup& group, DraftRoom room);

  // Write the next work of a group: a chunk of its prompt, or tokens that may
  // have drafts. PlanPrefill: of a group that feeds its prompt. PlanDecode: one
  // token for each sequence of several groups. They throw std::bad_alloc and
  // PlanError.
  // REQUIRES: HasRoomFor, and pages for the groups are available.
  void PlanGroup(RunningGroup& running, StepPlan* plan);
  void PlanPrefill(RunningGroup& running, StepPlan* plan);
  void PlanDecode(std::span<RunningGroup> groups, StepPlan* plan);

  // Adds the plan to `in_flight`, and counts what it feeds. `saved`: requests
  // whose pages it saves. Throws std::bad_alloc, having added nothing.
  void Remember(const StepPlan& plan, std::span<const RequestId> saved,
                PlansInFlight* in_flight);
  void Abandon();

 private:
  // Counts of what the plan feeds.
  struct Counts {
    int64_t num_prompt_tokens = 0;
    // Included: decoder prompts, with an encoder.
    int64_t num_after_sources = 0;
    int64_t num_fed_again = 0;
    int64_t num_decode_sequences = 0;
    int num_decode_groups = 0;  // without drafts
    int64_t num_draft_tokens_fed = 0;
    int64_t num_draft_pages = 0;
  };

  // Calls SequenceGroup::PlanStep, and subtracts its rows from the budget.
  void PlanRows(RunningGroup& running, StepPlan* plan);
  void PlanDrafting(RunningGroup& running, StepPlan* plan);
  // Adds the groups whose only work in this plan is copies or loads, because
  // the token budget ran out. They fail with the plan.
  void AddMovers();

  const int max_step_tokens_;
  const int max_logits_;        // per step
  const int max_prefill_rows_;  // per step
  const PagePool* const pool_;
  RunningGroups* const groups_;
  TimedStats* const counts_;
  StepBudget budget_;
  std::vector<RequestId> planned_;  // requests of the plan being written
  Counts planned_counts_;           // without continuations
  PlanSizes last_sizes_;            // sizes of the last plan that was not empty
};

}  // namespace espalier

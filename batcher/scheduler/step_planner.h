// StepPlanner: chooses the groups that work in the next step, and their order.
// First all groups that can decode, by turn, with drafts if there is room; then
// groups that feed their prompts; then those that come in: preempted groups and
// waiting requests (admission.h). Some steps are for prompts alone
// (prefill_share.h). Groups whose result is outstanding take part if they can
// run ahead of it; if no group can be scheduled at all, the plan stays empty
// until a result arrives, or lists of legal tokens that a group awaits.
//
// It decides from the groups' demand, has room made for them (preemption.h),
// and lets the plan writer add their work. It applies no results and ends no
// group.
//
// Invariants: a plan in which a group was preempted admits none, and has no
// drafts: pages are short. A plan is empty only if a result is outstanding, a
// group awaits lists, or no request can run.
//
// Belongs to its scheduler's strand.
#pragma once

#include <cstdint>

#include "base/model_description.h"
#include "batcher/scheduler/admission.h"
#include "batcher/scheduler/plan_writer.h"
#include "batcher/scheduler/plans_in_flight.h"
#include "batcher/scheduler/preemption.h"
#include "batcher/scheduler/prefill_share.h"
#include "batcher/scheduler/running_groups.h"
#include "batcher/scheduler/scheduler_options.h"
#include "batcher/scheduler/step_demand.h"
#include "batcher/scheduler/timed_stats.h"
#include "beam/drafts/group_drafts.h"
#include "beam/sequence_group.h"
#include "exec_request/step_plan.h"
#include "pages/page_pool.h"

namespace espalier {

class StepPlanner {
 public:
  // All pointers outlive this.
  StepPlanner(const ModelDescription& model, const SchedulerOptions& options,
              const PagePool* pool, RunningGroups* groups, Admission* admission,
              Preemption* preemption, PlansInFlight* in_flight,
              TimedStats* counts);

  // Writes the work of the next step into `plan`. Throws std::bad_alloc or
  // PlanError; then Abandon must be called.
  void Write(StepPlan* plan);
  // Adds the plan that was written to the plans in flight. Throws
  // std::bad_alloc, having added nothing; then Abandon must be called.
  void Remember(const StepPlan& plan) {
    writer_.Remember(plan, preemption_->saved(), in_flight_);
  }
  // Forgets the plan that was written.
  void Abandon() { writer_.Abandon(); }

 private:
  void Fill(bool decodes, const StepDemand& demand, StepPlan* plan);
  // Parts of Fill: groups that can decode, with or without drafts; groups that
  // feed their prompts; and groups that come in.
  void PlanDecodes(StepPlan* plan);
  void PlanPrefills(StepPlan* plan);
  void Admit(StepPlan* plan);
  // True if it is the prompts' turn to have a step alone.
  bool IsForPrefillAlone(const StepDemand& demand);
  // True if some group can feed its prompt, or could if it were admitted.
  bool CanAnyFeed();
  // True if a step with `num_decode_rows` decoding beams leaves some group that
  // feeds its prompt too few rows of logits.
  bool NeedsRowsOf(int num_decode_rows) const;
  // Returns the room for drafts of a step that takes `taken` pages. Prompts
  // that wait to be fed keep their share of the tokens, at least one. Drafts
  // leave the pages of a request that would be admitted without them.
  DraftRoom RoomForDrafts(const PlanRoom& taken);
  // True if a group that must draft to run ahead has room for that;
  // CanAnyDraftAhead: if any group does.
  bool CanDraftAhead(const SequenceGroup& group, const DraftRoom& room) const;
  bool CanAnyDraftAhead();

  const double share_of_prefill_;
  const int max_step_tokens_;
  const int max_logits_;  // per step
  const int max_drafted_length_;
  const PagePool* const pool_;
  RunningGroups* const groups_;
  Admission* const admission_;
  Preemption* const preemption_;
  PlansInFlight* const in_flight_;
  PlanWriter writer_;
  PrefillShare prefill_share_;
  // False if it is known that none can be admitted to the plan being written.
  bool may_admit_ = true;
};

}  // namespace espalier

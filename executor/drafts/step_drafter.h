// StepDrafter: makes the drafts of an executor's steps with a draft model. A
// plan asks for drafts (StepPlan::drafting); the executor calls Begin() right
// before the step that verifies them, on the thread that runs its steps:
//
//   StepDrafter::Step drafts;
//   drafter.Begin(&plan, &drafts);   // the plan's rows now have their drafts
//   ... run the plan ...
//   drafter.DraftForLater(&drafts);  // what a later plan verifies
//   drafter.End(&drafts, &result);   // the result of the planner's plan
//
// A later plan verifies the drafts of beams, and of samples with a constraint.
//
// Rows ahead (SampleDrafts::is_ahead) are completed in Begin() (rows_ahead.h).
// This needs the results of earlier plans, except on a device that feeds the
// unread results of one plan to the next: MustWait() tells.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "exec_request/step_plan.h"
#include "executor/drafts/draft_model.h"
#include "executor/drafts/rows_ahead.h"

namespace espalier {

class StepDrafter {
 public:
  // The drafts of a plan, from Begin() to End(). It must not move between. Its
  // constructor does not allocate.
  class Step {
   private:
    friend class StepDrafter;
    RowsAhead::Asked asked_;
    std::vector<DraftedTokens> drafts_;  // that this plan verifies
    // The sequences that a later plan verifies, with what a draft model reads
    // of a plan beside them, until they are drafted; and their drafts.
    std::optional<StepPlan> later_;
    std::vector<DraftedTokens> later_drafts_;
    // Requests that a later plan ended while later_ was to be drafted.
    std::vector<RequestId> ended_;
    absl::Duration time_;
    int num_rows_ = 0;
    absl::Status status_ = absl::OkStatus();
  };

  //   may_pend  drafts may be pending when Begin() returns
  //             (exec_request/plan_drafts.h)
  StepDrafter(std::shared_ptr<DraftModel> model, int page_size,
              bool may_pend = false)
      : model_(std::move(model)), page_size_(page_size), may_pend_(may_pend) {}

  const DraftModel& model() const { return *model_; }

  // True if Begin() needs results: End() must be called for all earlier plans.
  bool MustWait(const StepPlan& plan) const;

  // Makes the plan one that a model without drafts can run: completes rows
  // ahead, drafts, inserts the drafts, and clears plan->drafting. If the draft
  // model fails, there are no drafts, and End() reports why. Throws
  // std::bad_alloc; then the plan must not run, and End() gets an error.
  // REQUIRES: !MustWait(*plan).
  void Begin(StepPlan* plan, Step* step);

  // Drafts for the sequences that a later plan verifies, unless that is done.
  // Separate, so that a device can run the plan meanwhile. REQUIRES: the plan
  // has not ended.
  void DraftForLater(Step* step);

  // Converts the result of the plan that ran to that of the planner's plan. Is
  // called for every plan, in their order, also for those that failed.
  void End(Step* step, absl::StatusOr<StepResult>* result);

  // For tests: groups that have state here.
  int num_groups() const { return rows_ahead_.num_groups(); }

 private:
  // Sets the drafts for plan.drafting, unless the draft model fails.
  void Draft(const StepPlan& plan, Step* step,
             std::vector<DraftedTokens>* drafts);
  // Returns the running plan that the next one may follow without its result.
  RowsAhead::Unread LastRunning() const;

  const std::shared_ptr<DraftModel> model_;
  const int page_size_;
  const bool may_pend_;
  RowsAhead rows_ahead_;
  std::deque<Step*> running_;  // begun and not ended
};

}  // namespace espalier

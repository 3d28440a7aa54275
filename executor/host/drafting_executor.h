// DraftingExecutor: a draft model beside an executor that has none: steps run
// on that, and what a plan asks to be drafted is drafted on a thread of its own
// at the same time.
//
//   plan ──> rows, groups that go on ──> the executor ──┬──> result, in order
//        └─> drafting, ended ──────────> DraftModel ────┘
//
// Where rows of the plan verify what it drafts (DraftSequence::verified_by) it
// is handed on when that is there, filled in (fill_drafts.h), and so are the
// plans after it: the drafts of a sequence and the step that verifies them are
// one plan, with nobody else between them.
//
// A continuation with drafts (ContinuedDrafts) becomes such rows as soon as the
// executor has answered the plan before (drafted_groups.h), without the planner
// in between. Its plan waits for that, and for its drafts, with all it has.
//
// A plan that drafts nothing has nothing to wait for but those before it. They
// do not wait long: the draft model, too, feeds no more of a prompt in a plan
// than a step has room for (draft_model.h). The time to draft is reported
// beside that of the step, so that the scheduler knows what drafts cost.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "exec_request/step_executor.h"
#include "executor/host/draft_model.h"

namespace espalier {

class DraftingExecutor : public StepExecutor {
 public:
  // `steps` runs nothing else.
  // Errors: kInvalidArgument if it verifies no drafts, or the draft model is of
  // another vocabulary; kResourceExhausted if there is no thread to be had.
  static absl::StatusOr<std::shared_ptr<DraftingExecutor>> Create(
      std::shared_ptr<StepExecutor> steps, std::unique_ptr<DraftModel> draft);
  // Waits until the plans that were started are answered; but not within a
  // `done` that lets go of the executor, as ModelExecutor's does not.
  ~DraftingExecutor() override;

  // The executor's, with a draft model.
  const ModelDescription& description() const override { return description_; }
  int max_plans_in_flight() const override;

  // Where drafting fails nothing is drafted, and the result says why
  // (StepResult::draft_status). Plans before this one may be answered within
  // this call. Errors: the executor's.
  void Execute(StepPlan plan, Done done) override;

 private:
  class Drafts;
  explicit DraftingExecutor(std::shared_ptr<Drafts> drafts);

  const std::shared_ptr<Drafts> drafts_;
  const ModelDescription description_;
};

}  // namespace espalier

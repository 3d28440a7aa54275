// DraftingExecutor: adds a draft model to an executor that has none. Steps run
// on that executor, while a separate thread drafts for the plan's sequences.
//
//   plan ──> rows, continuations ──> the executor ──┬──> result, in order
//        └─> drafting, ended ──────> DraftModel ────┘
//
// If rows of the plan verify its own drafts (DraftSequence::verified_by), the
// plan waits for these drafts, is filled in (fill_drafts.h), and then passed to
// the executor. Later plans wait too, so that no other plan runs between the
// drafts of a sequence and their verification.
//
// A continuation with drafts (ContinuedDrafts) is expanded to such rows as soon
// as the previous result has arrived (drafted_groups.h), without the planner.
// Its whole plan waits for that and for its drafts.
//
// A plan without drafts waits only for earlier plans. That wait is short,
// because the draft model feeds at most a step's worth of prompt tokens per
// plan (draft_model.h). Draft time is reported beside step time, so that the
// scheduler can weigh the cost of drafts.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "exec_request/step_executor.h"
#include "executor/host/draft_model.h"

namespace espalier {

class DraftingExecutor : public StepExecutor {
 public:
  // REQUIRES: `steps` runs no other plans.
  // Errors: kInvalidArgument if it does not verify drafts, or the draft model
  // has another vocabulary; kResourceExhausted if a thread cannot be started.
  static absl::StatusOr<std::shared_ptr<DraftingExecutor>> Create(
      std::shared_ptr<StepExecutor> steps, std::unique_ptr<DraftModel> draft);
  // Waits for the results of all plans; but not within a `done` that releases
  // the executor, as in ModelExecutor.
  ~DraftingExecutor() override;

  // The executor's, with a draft model.
  const ModelDescription& description() const override { return description_; }
  int max_plans_in_flight() const override;

  // If drafting fails, the result has no drafts but the error
  // (StepResult::draft_status). `done` of earlier plans may be called within
  // this call.
  // Errors: the executor's.
  void Execute(StepPlan plan, Done done) override;

 private:
  class Drafts;
  explicit DraftingExecutor(std::shared_ptr<Drafts> drafts);

  const std::shared_ptr<Drafts> drafts_;
  const ModelDescription description_;
};

}  // namespace espalier

// ModelExecutor: runs Model::Forward and then selection on a thread of its own,
// so that the caller's strand never waits.
//
//   ASSIGN_OR_RETURN(auto pool, ThreadPool::Create(2));
//   ASSIGN_OR_RETURN(auto steps,
//                    ModelExecutor::Create(std::make_shared<MyModel>(), pool));
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "exec_request/model.h"
#include "exec_request/step_executor.h"

namespace espalier {

// Limits on the host resources of one step. A request that exceeds them alone
// is refused at submission, with an error that names the values. Requests that
// exceed them together wait for each other. Lower limits of the model take
// precedence.
struct ModelExecutorOptions {
  // Accepts two plans in flight, so that a step does not wait for the strand.
  // Must be off for models that keep state by sequence, because forks are not
  // reported to them then.
  bool run_ahead = false;
  // Total beams and samples of running requests: the rows of a step, each with
  // a row of logits. 0: 8,192, or fewer if their logits exceed 1 GiB.
  int max_beams = 0;
  // Candidates that a step ranks (StepLimits::max_candidates), and best tokens
  // reported beside them: at most 24 bytes each.
  int64_t max_candidates = 1 << 24;
  // Score edits per step (StepLimits::max_score_edits). This bounds work, not
  // memory, since each thread holds the edits of only one row.
  int64_t max_score_edits = 1 << 26;
  // Drafts tokens for requests with this option (draft_model.h), before the
  // step of their plan, which verifies drafts of samples. If it fails, the
  // requests have no drafts. Must have the model's vocabulary. Null: no draft
  // model.
  std::shared_ptr<Model> draft_model = nullptr;
};

class ModelExecutor : public StepExecutor {
 public:
  // Selection runs on `pool`, which the model and others may share.
  // Errors: kInvalidArgument if an argument is null, the model's description is
  // invalid (CheckDescription), a limit is below 1 (0 edits are allowed), or
  // the draft model has another vocabulary or is not supported by DraftModel;
  // kFailedPrecondition if a model runs on another executor; kResourceExhausted
  // if a thread or memory is not available.
  static absl::StatusOr<std::shared_ptr<ModelExecutor>> Create(
      std::shared_ptr<Model> model, std::shared_ptr<ThreadPool> pool,
      const ModelExecutorOptions& options = {});
  // Waits until all started plans are finished and their `done`s were called.
  // If one of these `done`s destroys the executor, the destructor does not
  // wait: the executor's thread finishes the remaining plans, releases the
  // model and the pool, and ends. It starts no thread, so it cannot fail.
  ~ModelExecutor() override;

  const ModelDescription& description() const override;
  int max_plans_in_flight() const override;

  // Errors, as results: the model's; kResourceExhausted if memory runs out;
  // kInternal if the model throws; kCancelled soon after plan.stop is
  // requested.
  void Execute(StepPlan plan, Done done) override;

 private:
  class Worker;
  explicit ModelExecutor(std::shared_ptr<Worker> worker);

  const std::shared_ptr<Worker> worker_;
};

}  // namespace espalier

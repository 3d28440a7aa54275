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

// The bounds are what one step may take of a host. A request that is beyond
// them is refused when it is submitted, and names the figures; requests that
// are so together wait for each other. Where the model's own limits are lower,
// those hold.
struct ModelExecutorOptions {
  // Takes two plans in flight, so that a step does not wait for the strand.
  // For models that keep what they know in pages: what is kept by sequence is
  // not told who forks, and must have this off.
  bool run_ahead = false;
  // Beams and samples of all requests that run: so many rows go through the
  // model at once, and each has a row of logits. 0: 8,192, or as many as have
  // 1 GiB of logits if those are fewer.
  int max_beams = 0;
  // Candidates that a step ranks (StepLimits::max_candidates), and best tokens
  // reported beside them: 24 bytes each at worst.
  int64_t max_candidates = 1 << 24;
  // Edits of scores (StepLimits::max_score_edits), of which only one row's are
  // held by each thread: a bound on work.
  int64_t max_score_edits = 1 << 26;
  // Drafts tokens for requests that ask for it (draft_model.h), before the step
  // of their plan, which verifies those of samples; where it fails they get
  // none. Of the model's vocabulary. Null: none.
  std::shared_ptr<Model> draft_model = nullptr;
};

class ModelExecutor : public StepExecutor {
 public:
  // Selection runs on `pool`, which may be the model's and that of others.
  // Errors: kInvalidArgument if one of them is null, the model's description is
  // not one to run with (CheckDescription), or a bound is below 1 (0 edits are
  // fine), or the draft model is not of the model's vocabulary or not one for
  // DraftModel; kFailedPrecondition if a model runs on another executor;
  // kResourceExhausted if there is no thread or memory to be had.
  static absl::StatusOr<std::shared_ptr<ModelExecutor>> Create(
      std::shared_ptr<Model> model, std::shared_ptr<ThreadPool> pool,
      const ModelExecutorOptions& options = {});
  // Waits until the plans that were started are finished and their `done`s
  // called. One of these may be what lets go of the executor: then nothing
  // waits, the executor's thread finishes the others after it, lets go of the
  // model and the pool, and ends. No thread is started for it, so this cannot
  // fail.
  ~ModelExecutor() override;

  const ModelDescription& description() const override;
  int max_plans_in_flight() const override;

  // Errors, as results: what the model returns; kResourceExhausted if memory
  // runs out; kInternal if the model throws; kCancelled if plan.stop was
  // requested, soon after.
  void Execute(StepPlan plan, Done done) override;

 private:
  class Worker;
  explicit ModelExecutor(std::shared_ptr<Worker> worker);

  const std::shared_ptr<Worker> worker_;
};

}  // namespace espalier

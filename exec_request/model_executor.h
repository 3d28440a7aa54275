// ModelExecutor: runs Model::Forward and then selection on a thread of its own,
// so that the caller's strand never waits.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "exec_request/model.h"
#include "exec_request/step_executor.h"

namespace espalier {

struct ModelExecutorOptions {
  // Takes two plans in flight, so that a step does not wait for the strand.
  // For models that keep what they know in pages: what is kept by sequence is
  // not told who forks, and must have this off.
  bool run_ahead = false;
};

class ModelExecutor : public StepExecutor {
 public:
  // Selection runs on `pool`, which may be the model's: a step uses it for
  // one thing at a time. Both outlive the executor.
  ModelExecutor(Model* model, ThreadPool* pool,
                const ModelExecutorOptions& options = {});
  // Finishes the plans that were started; their `done`s are called.
  ~ModelExecutor() override;

  const ModelDescription& description() const override;
  int max_plans_in_flight() const override;

  // Errors, as results: what the model returns; kResourceExhausted if memory
  // runs out; kInternal if the model throws.
  void Execute(StepPlan plan, Done done) override;

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace espalier

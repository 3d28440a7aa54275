// StepExecutor: runs plans somewhere. ModelExecutor, the one for models on the
// host, runs Model::Forward and then selection on a thread of its own, so that
// the caller's strand never waits.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "exec_request/model.h"
#include "exec_request/step_plan.h"

namespace espalier {

class StepExecutor {
 public:
  using Done = std::function<void(absl::StatusOr<StepResult>)>;

  virtual ~StepExecutor() = default;

  virtual const ModelDescription& description() const = 0;

  // Starts `plan` and returns at once; `done` is called once, on any thread,
  // and must only hand the result over. Plans run in the order of the calls.
  virtual void Execute(StepPlan plan, Done done) = 0;
};

// Selection over the logits of one plan: kernels/select.h for every group.
//   logits  [plan.num_logits, vocab_size]  f32  host
// A group's answer depends on its own rows alone.
std::vector<SelectionResult> SelectAll(const StepPlan& plan,
                                       std::span<const float> logits,
                                       int vocab_size, ThreadPool& pool);

class ModelExecutor : public StepExecutor {
 public:
  // Selection runs on `pool`, which may be the model's: a step uses it for
  // one thing at a time. Both outlive the executor.
  ModelExecutor(Model* model, ThreadPool* pool);
  // Finishes the plans that were started; their `done`s are called.
  ~ModelExecutor() override;

  const ModelDescription& description() const override;
  void Execute(StepPlan plan, Done done) override;

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace espalier

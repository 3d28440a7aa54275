// StepExecutor: runs plans and returns their results. model_executor.h
// implements it for models on the host.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "base/sole_use.h"
#include "exec_request/model.h"
#include "exec_request/step_plan.h"

namespace espalier {

class StepExecutor {
 public:
  using Done = std::function<void(absl::StatusOr<StepResult>)>;

  virtual ~StepExecutor() = default;

  // Returns the model's description with the limits of this executor. Constant.
  virtual const ModelDescription& description() const = 0;

  // Returns the number of plans that may run at the same time. More than one
  // requires an executor that supports continuations (step_plan.h). Constant.
  virtual int max_plans_in_flight() const { return 1; }

  // Starts `plan` and returns at once. `done` is called once, on any thread,
  // and must only pass the result on. Plans run and complete in the order of
  // the calls. A result has an entry for every selection and continuation of
  // its plan, in the plan's order. A plan that fails loses the state of its
  // groups. If an executor throws here, drops `done`, calls it twice, or
  // returns a result that does not match the plan, an engine ends the affected
  // requests with kInternal and continues.
  virtual void Execute(StepPlan plan, Done done) = 0;

  // Held by an engine from its first plan until a plan has named the end of
  // every request and sequence in its plans.
  SoleUse& sole_use() { return sole_use_; }

 private:
  SoleUse sole_use_;
};

}  // namespace espalier

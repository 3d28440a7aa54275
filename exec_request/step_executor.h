// StepExecutor: runs plans somewhere, and reports. model_executor.h has the one
// for models on the host.
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

  // The model's, with the limits of this executor. Constant.
  virtual const ModelDescription& description() const = 0;

  // Plans that may be started without having reported. More than one needs an
  // executor that takes continuations (step_plan.h). Constant.
  virtual int max_plans_in_flight() const { return 1; }

  // Starts `plan` and returns at once; `done` is called once, on any thread,
  // and must only hand the result over. Plans run, and report, in the order of
  // the calls. A result answers every selection and continuation of its plan,
  // in the plan's order. A plan that fails loses the state of its groups. If
  // an executor throws here, drops `done`, calls it twice, or returns a
  // result that does not match the plan, an engine ends the requests that it
  // cannot answer with kInternal, and goes on.
  virtual void Execute(StepPlan plan, Done done) = 0;

  // Of an engine: from its first plan on, until a plan has named the end of
  // every request and sequence that plans named.
  SoleUse& sole_use() { return sole_use_; }

 private:
  SoleUse sole_use_;
};

}  // namespace espalier

// StepExecutor: runs plans somewhere, and reports. model_executor.h has the one
// for models on the host.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
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
  // A result answers every selection of its plan, in the plan's order.
  virtual void Execute(StepPlan plan, Done done) = 0;
};

}  // namespace espalier

// ExecuteOnce: starts a step on an executor that may break its contract.
#pragma once

#include "exec_request/step_executor.h"
#include "exec_request/step_plan.h"

namespace espalier {

// Starts `plan` on `steps` and calls `done` exactly once, on any thread, then
// releases it. Passes the executor's first result; or kInternal, if the
// executor throws or drops its callback; or kResourceExhausted, if there is no
// memory to start the plan. Returns false if the executor threw: it may not
// have read the plan. Does not throw.
bool ExecuteOnce(StepExecutor* steps, StepPlan plan, StepExecutor::Done done);

}  // namespace espalier

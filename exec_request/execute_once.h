// How a step is started on an executor that may break its contract: by an
// engine, and by an executor that stands between the two (drafting_executor.h).
#pragma once

#include "exec_request/step_executor.h"
#include "exec_request/step_plan.h"

namespace espalier {

// Starts `plan` on `steps`, and calls `done` exactly once and then forgets it,
// on any thread: with the executor's first answer; or with kInternal, if it
// throws, or drops what it was to call without an answer; or with
// kResourceExhausted, if it has no memory to start it. Returns false if it
// threw: then it may not have read the plan. Does not throw.
bool ExecuteOnce(StepExecutor* steps, StepPlan plan, StepExecutor::Done done);

}  // namespace espalier

// Requests run under a scheduler by any executor, as an engine does, but
// without threads or clocks of its own.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "batcher/scheduler/scheduler.h"
#include "constrain/item_catalogues.h"
#include "exec_request/step_executor.h"
#include "request/request.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::testing {

using Answers = std::vector<absl::StatusOr<Result>>;

struct DriveOptions {
  int num_in_flight = 1;
  SchedulerOptions scheduler = {
      .max_running = 64, .max_step_tokens = 256, .validate_steps = true};
  // Called before the n-th plan; may submit and cancel.
  std::function<void(Scheduler&, int)> before_plan = [](Scheduler&, int) {};
  // Required by requests with stop strings.
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  // Required by requests for items.
  std::shared_ptr<const ItemCatalogues> items = nullptr;
};

// Runs all requests under one scheduler. Request i has RequestId{i}.
Answers Drive(StepExecutor& steps, const std::vector<Request>& requests,
              const DriveOptions& options);

// Runs one plan and waits for its answer.
absl::StatusOr<StepResult> RunPlan(StepExecutor& steps, StepPlan plan);

}  // namespace espalier::testing

#include "tests/executor/drive.h"

#include <gtest/gtest.h>

#include <deque>
#include <future>
#include <memory>
#include <utility>

#include "beam/constrain_to_items.h"
#include "beam/constraint_cache.h"

namespace espalier::testing {

namespace {

absl::StatusOr<std::shared_ptr<const Constraint>> ConstraintOf(
    const Request& request, const DriveOptions& options, int vocab_size,
    ConstraintCache& cache) {
  if (request.params.constraint && request.params.constraint->items) {
    return ConstrainToItems(*options.items, options.tokenizer.get(), vocab_size,
                            request);
  }
  return cache.Get(request);
}

}  // namespace

Answers Drive(StepExecutor& steps, const std::vector<Request>& requests,
              const DriveOptions& options) {
  Answers answers(requests.size(), absl::UnknownError("not answered"));
  Scheduler scheduler(steps.description(), options.scheduler,
                      options.num_in_flight > 1);
  ConstraintCache constraints(options.tokenizer, steps.description());
  for (size_t i = 0; i < requests.size(); ++i) {
    scheduler.Submit(
        RequestId{static_cast<int64_t>(i)},
        PreparedRequest(
            requests[i], options.tokenizer, &steps.description(),
            *ConstraintOf(requests[i], options, steps.description().vocab_size,
                          constraints)),
        [&answers, i](absl::StatusOr<Result> result) {
          answers[i] = std::move(result);
        });
  }
  std::deque<std::future<absl::StatusOr<StepResult>>> in_flight;
  for (int num_plans = 0;;) {
    while (static_cast<int>(in_flight.size()) < options.num_in_flight) {
      options.before_plan(scheduler, num_plans);
      StepPlan plan = scheduler.Plan();
      if (plan.empty() && plan.finished.empty() && plan.ended.empty()) break;
      ++num_plans;
      const auto done =
          std::make_shared<std::promise<absl::StatusOr<StepResult>>>();
      in_flight.push_back(done->get_future());
      steps.Execute(std::move(plan), [done](absl::StatusOr<StepResult> result) {
        done->set_value(std::move(result));
      });
    }
    if (in_flight.empty()) break;
    scheduler.Advance(in_flight.front().get());
    in_flight.pop_front();
  }
  EXPECT_EQ(scheduler.pool().num_in_use(), 0);
  return answers;
}

absl::StatusOr<StepResult> RunPlan(StepExecutor& steps, StepPlan plan) {
  std::promise<absl::StatusOr<StepResult>> done;
  steps.Execute(std::move(plan), [&](absl::StatusOr<StepResult> result) {
    done.set_value(std::move(result));
  });
  return done.get_future().get();
}

}  // namespace espalier::testing

// An executor whose every step is under a test's control, and engines for it.
#pragma once

#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/memory.h"
#include "batcher/engine.h"
#include "exec_request/step_executor.h"
#include "tests/batcher/toy_requests.h"
#include "tests/toy_model.h"
#include "tests/unowned.h"

namespace espalier::testing {

// Runs a plan only when the test calls it, on the test's thread.
class ManualExecutor : public StepExecutor {
 public:
  ManualExecutor(Model* model, int max_plans_in_flight)
      : model_(model),
        runner_(model),
        max_plans_in_flight_(max_plans_in_flight) {}

  const ModelDescription& description() const override {
    return model_->description();
  }
  int max_plans_in_flight() const override { return max_plans_in_flight_; }
  void Execute(StepPlan plan, Done done) override {
    num_tokens_ += std::ssize(plan.tokens);
    UntilThereIsMemory(
        [&] { started_.emplace_back(std::move(plan), std::move(done)); });
    CHECK_LE(started_.size(), max_plans_in_flight_);
  }

  // Tokens of all plans, without continuations.
  int64_t num_tokens() const { return num_tokens_; }
  int num_started() const { return static_cast<int>(started_.size()); }
  void RunStep() {
    auto [plan, done] = std::move(started_.front());
    started_.pop_front();
    done(runner_.Run(std::move(plan)));
  }
  int num_groups() const { return runner_.num_groups(); }

 private:
  Model* const model_;
  PlanRunner runner_;
  const int max_plans_in_flight_;
  int64_t num_tokens_ = 0;
  std::deque<std::pair<StepPlan, Done>> started_;
};

// With plans in flight, the model identifies sequences by pages alone.
inline ToyModelOptions SmallModel(int plans_in_flight = 1) {
  ToyModelOptions options;
  options.eos_boost = 2;
  options.num_pages = 400;
  options.memory = plans_in_flight > 1 ? ToyModelOptions::Memory::kPages
                                       : ToyModelOptions::Memory::kSequences;
  return options;
}

// The caller owns `steps`, or shares it.
inline Engine MakeEngine(const boost::asio::any_io_executor& executor,
                         std::shared_ptr<StepExecutor> steps,
                         const EngineOptions& options = {}) {
  absl::StatusOr<Engine> engine =
      Engine::Create(executor, std::move(steps), options);
  CHECK(engine.ok()) << engine.status().ToString();
  return *std::move(engine);
}
inline Engine MakeEngine(const boost::asio::any_io_executor& executor,
                         StepExecutor* steps,
                         const EngineOptions& options = {}) {
  return MakeEngine(executor, Unowned(steps), options);
}

inline EngineOptions Validated(int max_running = 256) {
  EngineOptions options;
  options.scheduler.max_running = max_running;
  options.scheduler.validate_steps = true;
  return options;
}

}  // namespace espalier::testing

// WrappedExecutor: forwards plans to another executor, so that a derived class
// can record when plans come and results go. All other calls return the other
// executor's values.
#pragma once

#include <memory>
#include <utility>

#include "exec_request/step_executor.h"

namespace espalier {

class WrappedExecutor : public StepExecutor {
 public:
  const ModelDescription& description() const override {
    return steps_->description();
  }
  int max_plans_in_flight() const override {
    return steps_->max_plans_in_flight();
  }

 protected:
  explicit WrappedExecutor(std::shared_ptr<StepExecutor> steps)
      : steps_(std::move(steps)) {}
  StepExecutor& steps() { return *steps_; }

 private:
  const std::shared_ptr<StepExecutor> steps_;
};

}  // namespace espalier

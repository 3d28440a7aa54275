// ExecutorLogProbs: an executor as a Model that gives log-probabilities in the
// place of logits: rows of logits are scored, with as many best tokens as there
// are. For vocabularies of up to 64 tokens, as many as an executor reports.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "exec_request/model.h"
#include "exec_request/step_executor.h"

namespace espalier::testing {

class ExecutorLogProbs : public Model {
 public:
  explicit ExecutorLogProbs(std::shared_ptr<StepExecutor> steps)
      : steps_(std::move(steps)) {}

  const ModelDescription& description() const override {
    return steps_->description();
  }
  // As one step.
  // REQUIRES: the plan has no selections.
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override;

 private:
  const std::shared_ptr<StepExecutor> steps_;
};

// Log-probabilities of a row of logits.
std::vector<float> LogProbsOf(std::span<const float> logits);

}  // namespace espalier::testing

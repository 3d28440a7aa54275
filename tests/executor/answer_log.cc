#include "tests/executor/answer_log.h"

namespace espalier::testing {

void AnswerLog::Execute(StepPlan plan, Done done) {
  steps_->Execute(std::move(plan), [this, done = std::move(done)](
                                       absl::StatusOr<StepResult> result) {
    if (result.ok()) {
      const std::lock_guard lock(mutex_);
      for (const SelectionResult& selection : result->selections) {
        answers_[selection.request].emplace_back(selection.candidates.begin(),
                                                 selection.candidates.end());
      }
    }
    done(std::move(result));
  });
}

std::map<RequestId, CandidateLists> AnswerLog::Take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(answers_, {});
}

}  // namespace espalier::testing

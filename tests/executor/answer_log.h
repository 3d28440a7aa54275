// AnswerLog: an executor that remembers what another one answers: each
// request's candidates, step by step.
//
// Thread safety: as StepExecutor; Take when no plan runs.
#pragma once

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/ids.h"
#include "exec_request/step_executor.h"

namespace espalier::testing {

// [steps]
using CandidateLists = std::vector<std::vector<Candidate>>;

class AnswerLog : public StepExecutor {
 public:
  // `steps` outlives it.
  explicit AnswerLog(StepExecutor* steps) : steps_(steps) {}

  const ModelDescription& description() const override {
    return steps_->description();
  }
  int max_plans_in_flight() const override {
    return steps_->max_plans_in_flight();
  }
  void Execute(StepPlan plan, Done done) override;

  // What was answered since the last call.
  std::map<RequestId, CandidateLists> Take();

 private:
  StepExecutor* const steps_;
  std::mutex mutex_;
  std::map<RequestId, CandidateLists> answers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace espalier::testing

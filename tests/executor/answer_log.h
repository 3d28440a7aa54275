// AnswerLog: an executor that remembers what another one answers: each
// request's candidates, step by step, also of steps that are decided together
// because drafts were verified. What may be left out of a step of beams is
// (BeamSelection::num_kept), whether the executor does so or not.
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
#include "kernels/select/best_candidates.h"

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

  // Returns the results since the last call, and clears them.
  std::map<RequestId, CandidateLists> Take();

 private:
  // Ranking of a request's beams.
  struct Ranking {
    int num_candidates = 0;
    int num_beams = 0;
    std::vector<TokenId> eos_token_ids;
  };
  void Add(const SelectionResult& selection, CandidateLists* lists)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Candidate> Ranked(const SelectionResult& step) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  StepExecutor* const steps_;
  std::mutex mutex_;
  std::map<RequestId, Ranking> rankings_ ABSL_GUARDED_BY(mutex_);
  std::map<RequestId, CandidateLists> answers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace espalier::testing

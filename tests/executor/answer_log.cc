#include "tests/executor/answer_log.h"

namespace espalier::testing {

void AnswerLog::Execute(StepPlan plan, Done done) {
  {
    const std::lock_guard lock(mutex_);
    for (const PlanSelection& selection : plan.selections) {
      const BeamSelection* const beams = selection.as_beams();
      if (beams == nullptr || beams->num_kept == 0) continue;
      rankings_[selection.request] = {
          beams->num_candidates,
          beams->num_kept,
          {selection.eos_token_ids.begin(), selection.eos_token_ids.end()}};
    }
  }
  steps_->Execute(std::move(plan), [this, done = std::move(done)](
                                       absl::StatusOr<StepResult> result) {
    if (result.ok()) {
      const std::lock_guard lock(mutex_);
      for (const SelectionResult& selection : result->selections) {
        Add(selection, &answers_[selection.request]);
      }
    }
    done(std::move(result));
  });
}

void AnswerLog::Add(const SelectionResult& selection, CandidateLists* lists) {
  // A run of one sample is as many steps.
  if (selection.num_tokens.size() == 1) {
    for (const Candidate& candidate : selection.candidates) {
      lists->push_back({candidate});
    }
    return;
  }
  lists->push_back(Ranked(selection));
  for (const SelectionResult& step : selection.further) {
    lists->push_back(Ranked(step));
  }
}

std::vector<Candidate> AnswerLog::Ranked(const SelectionResult& step) const {
  const auto ranking = rankings_.find(step.request);
  if (ranking == rankings_.end() || step.candidates.empty()) {
    return {step.candidates.begin(), step.candidates.end()};
  }
  const auto& [num_candidates, num_beams, eos_token_ids] = ranking->second;
  BestCandidates best(num_candidates, num_beams, eos_token_ids);
  for (const Candidate& candidate : step.candidates) {
    const TokenScore token = {candidate.token, candidate.cum_log_prob};
    best.Add(candidate.beam, {&token, 1}, 0);
  }
  return best.Take();
}

std::map<RequestId, CandidateLists> AnswerLog::Take() {
  const std::lock_guard lock(mutex_);
  rankings_.clear();
  return std::exchange(answers_, {});
}

}  // namespace espalier::testing

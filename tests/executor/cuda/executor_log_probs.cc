#include "tests/executor/cuda/executor_log_probs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/status.h"
#include "tests/executor/drive.h"

namespace espalier::testing {

absl::Status ExecutorLogProbs::Forward(const StepPlan& plan,
                                       std::span<float> logits) {
  const int vocab_size = description().vocab_size;
  StepPlan scored = plan;
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const PlanRow& row = plan.rows[r];
    if (row.num_logits == 0) continue;
    scored.scorings.push_back(
        {.request = RequestId{static_cast<int64_t>(r)},
         .first_logits = row.first_logits,
         .tokens = std::vector<TokenId>(row.num_logits, 0),
         .num_logprobs = vocab_size});
  }
  ASSIGN_OR_RETURN(const StepResult result,
                   RunPlan(*steps_, std::move(scored)));
  std::ranges::fill(logits, -std::numeric_limits<float>::infinity());
  size_t logits_row = 0;
  for (const PromptLogprobsResult& scoring : result.scorings) {
    for (const TokenLogProb& row : scoring.logprobs) {
      for (const TokenScore& score : row.best) {
        logits[logits_row * vocab_size + score.token] = score.log_prob;
      }
      ++logits_row;
    }
  }
  return absl::OkStatus();
}

std::vector<float> LogProbsOf(std::span<const float> logits) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  std::vector<float> log_probs;
  for (const float logit : logits) {
    log_probs.push_back(static_cast<float>(logit - max - std::log(sum)));
  }
  return log_probs;
}

}  // namespace espalier::testing

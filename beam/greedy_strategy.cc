#include "beam/greedy_strategy.h"

#include <algorithm>

#include "base/check.h"
#include "beam/finished_pool.h"
#include "beam/selection_options.h"

namespace espalier {

GreedyStrategy::GreedyStrategy(const GenerationParams& params)
    : max_new_tokens_(SaturateToInt(params.max_new_tokens.value())),
      eos_token_ids_(DistinctEosTokenIds(params)) {}

void GreedyStrategy::DescribeSelection(PlanSelection* selection) const {
  CHECK(!done_) << "the request is done";
  selection->num_rows = 1;
  selection->num_candidates = 1;
  selection->domain = ScoreDomain::kLogits;
  selection->num_generated = static_cast<int>(tokens_.size());
  selection->cum_log_probs = {cum_log_prob_};
}

absl::StatusOr<std::vector<Continuation>> GreedyStrategy::Advance(
    std::span<const Candidate> candidates) {
  CHECK(!done_) << "the request is done";
  if (candidates.empty()) {
    done_ = true;
    return NoTokenPossible(static_cast<int>(tokens_.size()));
  }
  const Candidate& best = candidates.front();
  tokens_.push_back(best.token);
  cum_log_prob_ = best.cum_log_prob;
  if (std::binary_search(eos_token_ids_.begin(), eos_token_ids_.end(),
                         best.token)) {
    finish_reason_ = FinishReason::kEos;
  } else if (tokens_.size() >= max_new_tokens_) {
    finish_reason_ = FinishReason::kLength;
  }
  done_ = finish_reason_.has_value();
  if (done_) return std::vector<Continuation>();
  return std::vector<Continuation>{{.parent_rank = 0, .token = best.token}};
}

void GreedyStrategy::AppendTokens(int rank,
                                  std::vector<TokenId>* tokens) const {
  CHECK_EQ(rank, 0) << "greedy search has one beam";
  tokens->insert(tokens->end(), tokens_.begin(), tokens_.end());
}

std::vector<Hypothesis> GreedyStrategy::Hypotheses() const {
  if (!finish_reason_.has_value()) return {};
  const int length = static_cast<int>(tokens_.size());
  return {{.tokens = tokens_,
           .score = LengthPenalizedScore(cum_log_prob_, length, 1.0),
           .cum_log_prob = cum_log_prob_,
           .finish_reason = *finish_reason_}};
}

}  // namespace espalier

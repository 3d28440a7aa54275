// GreedyStrategy: one sequence, the best token at every step, until an EOS id
// or max_new_tokens. Score processors act on logits here (transformers 5
// `_sample` without sampling); scores are the model's own log-probabilities.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "beam/decode_strategy.h"

namespace espalier {

class GreedyStrategy : public DecodeStrategy {
 public:
  // `params` as ValidateParams leaves them.
  explicit GreedyStrategy(const GenerationParams& params);

  void DescribeSelection(PlanSelection* selection) const override;
  absl::StatusOr<std::vector<Continuation>> Advance(
      std::span<const Candidate> candidates) override;
  bool done() const override { return done_; }
  void AppendTokens(int rank, std::vector<TokenId>* tokens) const override;
  std::vector<Hypothesis> Hypotheses() const override;

 private:
  const int max_new_tokens_;
  const std::vector<TokenId> eos_token_ids_;  // ascending

  std::vector<TokenId> tokens_;
  float cum_log_prob_ = 0;
  std::optional<FinishReason> finish_reason_;  // unset: live, or failed
  bool done_ = false;
};

}  // namespace espalier

// BeamStrategy: beam search as transformers 5 does it (`_beam_search`,
// vectorised), to the token and to the score. With k = num_beams, t the length
// generated including the new token and m = max(2, 1 + num_eos) * k:
//
//   - the m best continuations of the live beams are the candidates;
//   - a candidate hits if it ends in an EOS id or has max_new_tokens tokens;
//   - the k best that do not hit live on;
//   - those of the k best that hit enter the finished pool of k with score
//     cum / t^length_penalty;
//   - the request can improve while the pool is not full, or the best live
//     beam's cum / L^length_penalty beats the pool's worst, with L =
//     max_new_tokens if early_stopping is "never" and length_penalty > 0, else
//     t;
//   - it ends when it cannot improve, when early_stopping is true and the pool
//     is full, or when every candidate hit.
//
// The reference also keeps a pool from filling after such an end: there a
// request goes on with its batch, here it is over.
//
// One knowing difference: where score processors leave fewer than k possible
// continuations, fewer beams live and fewer hypotheses come back; the
// reference fills up with copies of score -1e9.
#pragma once

#include <span>
#include <vector>

#include "beam/decode_strategy.h"
#include "beam/finish_rule.h"
#include "beam/finished_pool.h"
#include "beam/token_tree.h"

namespace espalier {

class BeamStrategy : public DecodeStrategy {
 public:
  // `params` as ValidateParams leaves them.
  explicit BeamStrategy(const GenerationParams& params);

  void DescribeSelection(PlanSelection* selection) const override;
  bool runs_ahead() const override { return true; }
  absl::StatusOr<std::vector<Continuation>> Advance(
      const SelectionResult& result, std::vector<Decision>* decisions) override;
  bool done() const override { return done_; }
  void AppendTokens(int rank, std::vector<TokenId>* tokens) const override;
  std::vector<Hypothesis> Hypotheses() const override;

 private:
  struct LiveBeam {
    TokenTree::Node node = TokenTree::kRoot;
    float cum_log_prob = 0;
  };

  // Makes beams and hypotheses of the candidates; returns the former.
  std::vector<Continuation> Rank(std::span<const Candidate> candidates,
                                 std::vector<Decision>* decisions);
  TokenTree::Node Append(const Candidate& candidate);
  FinishedBeam Finish(const Candidate& candidate, FinishReason reason);
  // REQUIRES: some beam is live.
  bool CanImprove() const;

  // Constant after construction.
  const int num_beams_;
  const int num_return_sequences_;
  const double length_penalty_;
  const EarlyStopping early_stopping_;
  const FinishRule finish_rule_;

  TokenTree tree_;
  FinishedPool finished_;
  std::vector<LiveBeam> live_;  // by rank
  int num_generated_ = 0;
  bool done_ = false;
};

}  // namespace espalier

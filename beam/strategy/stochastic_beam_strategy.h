// StochasticBeamStrategy: num_beams different sequences, sampled without
// replacement from the distribution of single samples.
//
// With Gumbel noise added to the log-probability l of every sequence, the k
// highest sums would be such a sample. For a beam, the maximum G of the sums of
// all sequences that begin with it is known, because its parent's is: G of the
// parent is the maximum over its children. So a step adds noise to the children
// and shifts their sums until the maximum is right. With T the parent's G, Z
// the children's maximum:
//
//   v  = T - g + log(1 - exp(g - Z)),   g = l + noise of a child
//   G  = T - max(0, v) - log(1 + exp(-|v|))        (ShiftToMaximum)
//
// The k highest of all children and all finished sequences make the next beam.
// The search is exact, because a pruned sequence has k better ones. Children of
// the root are not shifted: their maximum is the sum of the best sequence of
// all.
//
// The result is ordered by G, which is the order of sampling. `threshold` is
// the highest G of all pruned sequences, that of sequence k + 1. Each row gives
// k + 1 tokens, so it is never missed. The threshold depends on no sampled
// sequence, which makes the importance weights 1 / P(G > threshold) unbiased.
//
// The noise of a row depends on the rank of its beam and on the step.
//
// Source: Kool et al. 2019, Stochastic beams and where to find them,
// https://arxiv.org/abs/1903.06059, algorithm 1 and appendix B.3.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "beam/strategy/decode_strategy.h"
#include "beam/strategy/growing_sequence.h"
#include "beam/strategy/stopping_criteria.h"
#include "beam/strategy/token_tree.h"

namespace espalier {

class StochasticBeamStrategy : public DecodeStrategy {
 public:
  // `params` as ValidateParams leaves them; other arguments as for
  // StoppingCriteria.
  explicit StochasticBeamStrategy(
      const GenerationParams& params,
      std::shared_ptr<const Constraint> constraint = nullptr,
      std::shared_ptr<const RequestText> text = nullptr);

  void DescribeSelection(PlanSelection* selection) const override;
  static int64_t MaxNumCandidates(const GenerationParams& params,
                                  const Constraint*) {
    return params.num_beams + 1;
  }
  bool supports_async_scheduling() const override { return false; }
  absl::Status Advance(const SelectionResult& result,
                       std::vector<Decision>* decisions) override;
  void FinishLive(FinishReason reason) override;
  bool done() const override { return done_; }
  const StoppingCriteria& stopping_criteria() const override {
    return stopping_criteria_;
  }
  void ForEachProgress(
      absl::FunctionRef<void(const StoppingCriteria::Progress&)> visit)
      const override;
  TokenTree::Node node(int rank) const override;
  std::vector<Hypothesis> Hypotheses() const override;
  const TokenTree& tree() const override { return tree_; }
  std::vector<SequenceState> States() const override;
  std::optional<double> threshold() const override { return threshold_; }

 private:
  struct Sequence : GrowingSequence {
    double gumbel_top_k = 0;  // G
    Continuation from = {};   // in the last step, if it lives
  };
  // A sequence that may be in the next beam: a child, or a finished one.
  struct Contender {
    double gumbel_top_k = 0;
    int idx = 0;  // index of the candidate, or of the finished sequence
    bool is_child = false;
  };

  std::vector<Contender> Contenders(
      std::span<const Candidate> candidates) const;
  // Appends the children of one row with their sums.
  void AddChildren(std::span<const Candidate> candidates, int first_idx,
                   std::vector<Contender>* contenders) const;
  Sequence ChildOf(const Candidate& candidate, double gumbel_top_k);
  // `child` is null if the candidate is pruned.
  Decision DecisionOn(const SelectionResult& result, int candidate_idx,
                      const Sequence* child) const;
  // Updates the live beams after the beam was replaced.
  void GoOn();

  // Constant after construction.
  const int num_beams_;
  const int num_return_sequences_;
  const int max_new_tokens_;
  const uint64_t seed_;
  const StoppingCriteria stopping_criteria_;

  TokenTree tree_;
  std::vector<Sequence> beam_;  // by falling G, at most num_beams
  std::vector<int> live_;       // indices in beam_, by rank
  std::optional<double> threshold_;
  int num_generated_ = 0;
  bool done_ = false;
};

}  // namespace espalier

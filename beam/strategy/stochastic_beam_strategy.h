// StochasticBeamStrategy: num_beams different sequences, drawn without
// replacement from the distribution that single samples are drawn from.
//
// If every sequence had Gumbel noise added to its log-probability l, the k
// highest would be such a draw. Of a beam the sum G of both is known for the
// best sequence that begins with it, since that of its parent is: it is the
// maximum over the children. So a step draws noise for the children and shifts
// it until the maximum is right; with T the parent's G, Z the children's
// maximum:
//
//   v  = T - g + log(1 - exp(g - Z)),   g = l + noise of a child
//   G  = T - max(0, v) - log(1 + exp(-|v|))        (ShiftToMaximum)
//
// The k highest of all children and of all sequences that are finished already
// make the next beam: search is exact, a pruned sequence has k better
// ones. Children of the root are not shifted: their maximum is the noise of the
// best sequence of all.
//
// The result is in the order of G, which is the order of the draw. `threshold`
// is the highest G of all that were pruned, that is of sequence k + 1; each row
// gives k + 1 tokens, so none that could be it is missed. It depends on no
// sequence drawn, which makes the importance weights 1 / P(G > threshold)
// unbiased.
//
// The noise of a row is of the rank of its beam and of the step.
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
  // `params` as ValidateParams leaves them; the rest as StoppingCriteria takes
  // it.
  explicit StochasticBeamStrategy(
      const GenerationParams& params,
      std::shared_ptr<const AllowedSequenceTrie> allowed = nullptr,
      std::shared_ptr<const RequestText> text = nullptr);

  void DescribeSelection(PlanSelection* selection) const override;
  static int64_t MaxNumCandidates(const GenerationParams& params,
                                  const AllowedSequenceTrie*) {
    return params.num_beams + 1;
  }
  bool supports_async_scheduling() const override { return false; }
  absl::Status Advance(const SelectionResult& result,
                       std::vector<Decision>* decisions) override;
  void FinishLive(FinishReason reason) override;
  bool done() const override { return done_; }
  TokenTree::Node node(int rank) const override;
  std::vector<Hypothesis> Hypotheses() const override;
  const TokenTree& tree() const override { return tree_; }
  std::vector<SequenceState> States() const override;
  std::optional<double> threshold() const override { return threshold_; }

 private:
  struct Sequence : GrowingSequence {
    double gumbel_top_k = 0;  // G
    Continuation from = {};   // of the last step, if it lives
  };
  // A sequence that a beam could hold next: a child, or one that is finished.
  struct Contender {
    double gumbel_top_k = 0;
    int idx = 0;  // of the candidate; or of the sequence that is finished
    bool is_child = false;
  };

  std::vector<Contender> Contenders(
      std::span<const Candidate> candidates) const;
  // What the children of one row sum to.
  void AddChildren(std::span<const Candidate> candidates, int first_idx,
                   std::vector<Contender>* contenders) const;
  Sequence ChildOf(const Candidate& candidate, double gumbel_top_k);
  // `child` is null if the candidate is pruned.
  Decision DecisionOn(const SelectionResult& result, int candidate_idx,
                      const Sequence* child) const;
  // The beams that live on, now that the beam is the next one.
  void GoOn();

  // Constant after construction.
  const int num_beams_;
  const int num_return_sequences_;
  const int max_new_tokens_;
  const uint64_t seed_;
  const StoppingCriteria stopping_criteria_;

  TokenTree tree_;
  std::vector<Sequence> beam_;  // by falling G, at most num_beams
  std::vector<int> live_;       // of these, by rank
  std::optional<double> threshold_;
  int num_generated_ = 0;
  bool done_ = false;
};

}  // namespace espalier

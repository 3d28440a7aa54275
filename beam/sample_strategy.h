// SampleStrategy: independent sequences, each continued by a token drawn at
// every step, until a token ends it or max_new_tokens is reached. Greedy search
// is the case of one sample at temperature 0 (transformers 5 `_sample` without
// sampling).
//
// All samples draw their first token from one row, that of the prompt. Ranks
// are those of the samples that live, in ascending order. Score processors act
// on logits here; scores are the model's own log-probabilities.
//
// Where no token is possible for one sample the request ends with that error,
// as in the reference: what the others are would be no draw of so many.
//
// Where sequences are allowed, a sample ends with the first that it completes,
// also if that is the beginning of another: sequences that end in an EOS leave
// the choice between the two to the model.
#pragma once

#include <memory>
#include <vector>

#include "beam/decode_strategy.h"
#include "beam/growing_sequence.h"
#include "beam/stopping_criteria.h"

namespace espalier {

class SampleStrategy : public DecodeStrategy {
 public:
  // `params` as ValidateParams leaves them; the rest as StoppingCriteria takes
  // it.
  explicit SampleStrategy(
      const GenerationParams& params,
      std::shared_ptr<const AllowedSequenceTrie> allowed = nullptr,
      std::shared_ptr<const RequestText> text = nullptr);

  void DescribeSelection(PlanSelection* selection) const override;
  bool supports_async_scheduling() const override {
    return stopping_criteria_.is_by_token();
  }
  absl::StatusOr<std::vector<Continuation>> Advance(
      const SelectionResult& result, std::vector<Decision>* decisions) override;
  bool done() const override { return done_; }
  TokenTree::Node node(int rank) const override;
  // By mean log-probability; equals in the order of samples.
  std::vector<Hypothesis> Hypotheses() const override;
  const TokenTree& tree() const override { return tree_; }
  std::vector<SequenceState> States() const override;

 private:
  using Sample = GrowingSequence;

  Decision DecisionOn(int candidate_idx, TokenTree::Node parent,
                      const Sample& sample) const;
  Hypothesis HypothesisOf(const Sample& sample) const;

  // Constant after construction.
  const int num_return_sequences_;
  const int max_new_tokens_;
  const StoppingCriteria stopping_criteria_;

  TokenTree tree_;
  std::vector<Sample> samples_;
  std::vector<int> live_;  // samples, ascending
  int num_generated_ = 0;
  bool done_ = false;
};

}  // namespace espalier

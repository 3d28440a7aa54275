// SampleStrategy: independent sequences, each continued by a token drawn at
// every step, until a token ends it or max_new_tokens is reached. Greedy search
// is the case of one sample at temperature 0 (transformers 5 `_sample` without
// sampling).
//
// Where drafts are verified a sample takes on several tokens in a step, and
// samples may differ in length.
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

#include <cmath>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "beam/strategy/decode_strategy.h"
#include "beam/strategy/growing_sequence.h"
#include "beam/strategy/stopping_criteria.h"

namespace espalier {

class SampleStrategy final : public DecodeStrategy {
 public:
  // `params` as ValidateParams leaves them; the rest as StoppingCriteria takes
  // it.
  explicit SampleStrategy(
      const GenerationParams& params,
      std::shared_ptr<const AllowedSequenceTrie> allowed = nullptr,
      std::shared_ptr<const RequestText> text = nullptr);

  void DescribeSelection(PlanSelection* selection) const override;
  static int64_t MaxNumCandidates(const GenerationParams&,
                                  const AllowedSequenceTrie*) {
    return 1;
  }
  void UpdateSelection(PlanSelection* selection) const override {
    if (stopping_criteria_.restricts()) return DescribeSelection(selection);
    UpdateUnrestricted(selection);
  }
  // UpdateSelection without a look at lists of allowed tokens.
  // REQUIRES: none restricts the request.
  void UpdateUnrestricted(PlanSelection* selection) const;
  bool supports_async_scheduling() const override {
    return stopping_criteria_.is_by_token();
  }
  bool supports_drafts() const override { return true; }
  bool supports_late_drafts() const override {
    return !stopping_criteria_.restricts();
  }
  int max_draft_tokens(int rank) const override;
  std::vector<std::vector<TokenId>> CutDrafts(
      std::vector<std::vector<TokenId>> drafts, bool are_drawn) const override;
  void DescribeDrafts(std::vector<std::vector<TokenId>> drafts,
                      PlanSelection* selection) const override;
  absl::Status Advance(const SelectionResult& result,
                       std::vector<Decision>* decisions) override;
  // Advance after the first step where each sample goes on by a token, which
  // is mostly so. False where one ends, or where `drawn` is no answer to what
  // was asked (beam/validate_result.h), and nothing is done.
  // REQUIRES: !done(); no drafts are verified, and none restricts the request.
  bool ContinueAll(std::span<const Candidate> drawn, int vocab_size) {
    // Mostly there is one: compiled by itself, its loops are gone.
    return live_.size() == 1 ? ContinueSamples(drawn, 1, vocab_size)
                             : ContinueManySamples(drawn, vocab_size);
  }
  void FinishLive(FinishReason reason) override;
  bool done() const override { return done_; }
  TokenTree::Node node(int rank) const override;
  // By mean log-probability; equals in the order of samples.
  std::vector<Hypothesis> Hypotheses() const override;
  const TokenTree& tree() const override { return tree_; }
  std::vector<SequenceState> States() const override;

 private:
  using Sample = GrowingSequence;

  // Tokens that a live sample has generated.
  int NumGenerated(int sample) const { return samples_[sample].length; }
  // How many tokens of a draft stand before one that ends the sample or may not
  // follow.
  size_t LengthOfDraft(const Sample& sample,
                       std::span<const TokenId> draft) const;
  // Why `drawn` is no token. Of several samples it does not say after how many
  // tokens: drafts decide which of them comes to such a place first.
  absl::Status NoToken(TokenId drawn, int sample_idx) const;
  // Whether a sample takes on `drawn` from row `rank`, and nothing more.
  bool GoesOn(const Candidate& drawn, int rank, const Sample& sample,
              int vocab_size) const {
    return drawn.beam == rank && drawn.token >= 0 && drawn.token < vocab_size &&
           std::isfinite(drawn.cum_log_prob) &&
           sample.length + 1 < max_new_tokens_ &&
           stopping_criteria_.IsIdle(drawn.token);
  }
  // ContinueAll of `num_live` samples, which are all that live; and of any
  // number, out of line.
  bool ContinueSamples(std::span<const Candidate> drawn, int num_live,
                       int vocab_size);
  bool ContinueManySamples(std::span<const Candidate> drawn, int vocab_size);
  // Advance by a token of each sample, of which nobody reports.
  void AdvanceByOne(std::span<const Candidate> drawn);
  // Advance of any answer.
  absl::Status AdvanceByRuns(const SelectionResult& result,
                             std::vector<Decision>* decisions);
  // Takes a sample on by the tokens of `run`, until one ends it; returns how
  // many these are.
  int GrowBy(std::span<const Candidate> run, int first_candidate, int sample,
             std::vector<Decision>* decisions);
  // The sample of a rank ends, whose path this was before the step, by the last
  // of so many tokens.
  void OnEnd(size_t rank, TokenTree::Node node, size_t num_tokens);
  // So many are left of those that lived, fewer.
  void ShrinkLive(size_t num_live);
  Decision DecisionOn(int candidate_idx, TokenTree::Node parent,
                      const Sample& sample) const;
  Hypothesis HypothesisOf(const Sample& sample) const;

  // What each step reads comes first.
  std::vector<Sample> samples_;
  SmallVector<int> live_;  // samples, ascending
  const int max_new_tokens_;
  const int num_return_sequences_;
  bool is_forked_ = false;  // the first step is answered
  bool done_ = false;
  TokenTree tree_;
  const StoppingCriteria stopping_criteria_;
};

// UpdateUnrestricted and ContinueSamples are called for most groups at each
// step.
inline void SampleStrategy::UpdateUnrestricted(PlanSelection* selection) const {
  const std::span<const int> live = live_;
  const Sample* const samples = samples_.data();
  float* const cum_log_probs = selection->cum_log_probs.data();
  const auto update = [&](size_t rank) {
    cum_log_probs[rank] = samples[live[rank]].cum_log_prob;
  };
  update(0);  // mostly all
  for (size_t rank = 1; rank < live.size(); ++rank) update(rank);
  selection->num_generated = samples[live.front()].length;
}

[[gnu::always_inline]] inline bool SampleStrategy::ContinueSamples(
    std::span<const Candidate> drawn, int num_live, int vocab_size) {
  if (std::ssize(drawn) != num_live || !is_forked_) return false;
  const int* const live = live_.data();
  Sample* const samples = samples_.data();
  for (int rank = 0; rank < num_live; ++rank) {
    const Sample& sample = samples[live[rank]];
    if (!GoesOn(drawn[rank], rank, sample, vocab_size)) return false;
  }
  if (!ended_.empty()) ended_.clear();
  for (int rank = 0; rank < num_live; ++rank) {
    const TokenId token = drawn[rank].token;
    Sample& sample = samples[live[rank]];
    sample.node = tree_.Append(sample.node, token);
    ++sample.length;
    sample.cum_log_prob = drawn[rank].cum_log_prob;
    continuations_[rank] = {rank, token, 1};
  }
  return true;
}

}  // namespace espalier

// SampleStrategy: independent sequences, each continued by one sampled token
// per step until a token ends it or it reaches max_new_tokens. Greedy search is
// one sample at temperature 0 (transformers 5 `_sample` without sampling).
//
// If drafts are verified, a sample may get several tokens in a step, and
// samples may differ in length.
//
// All samples draw their first token from one row, the prompt's. Ranks number
// the live samples in ascending order. Score processors act on logits here;
// scores are the model's own log-probabilities, or with renormalize_logits or
// timestamps those after score processors.
//
// If no token is possible for one sample, the request ends with that error, as
// in the reference: without that sample the others would be a biased draw.
//
// With a constraint, a sample ends with the first sequence of it that it
// completes, even if that is a prefix of another. If the sequences end in an
// EOS, the model chooses between the two.
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
  // `params` as ValidateParams leaves them; other arguments as for
  // StoppingCriteria.
  explicit SampleStrategy(
      const GenerationParams& params,
      std::shared_ptr<const Constraint> constraint = nullptr,
      std::shared_ptr<const RequestText> text = nullptr);

  void DescribeSelection(PlanSelection* selection) const override;
  static int64_t MaxNumCandidates(const GenerationParams&, const Constraint*) {
    return 1;
  }
  void UpdateSelection(PlanSelection* selection) const override {
    if (stopping_criteria_.restricts()) return DescribeSelection(selection);
    UpdateUnrestricted(selection);
  }
  // UpdateSelection without allow lists.
  // REQUIRES: no allow list restricts the request.
  void UpdateUnrestricted(PlanSelection* selection) const;
  bool supports_async_scheduling() const override {
    return stopping_criteria_.ends_by_state();
  }
  bool needs_lists() const override { return false; }
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
  // Fast path of Advance after the first step, for the common result in which
  // each sample continues by one token. Returns false, having changed nothing,
  // if a sample ends or `drawn` is not a valid result (beam/validate_result.h).
  // REQUIRES: !done(); no drafts are verified, and no allow list restricts the
  // request.
  [[gnu::always_inline]] bool ContinueAll(std::span<const Candidate> drawn,
                                          int vocab_size) {
    // One sample is the common case; its loops are compiled away.
    return live_.size() == 1 ? ContinueSamples(drawn, 1, vocab_size)
                             : ContinueManySamples(drawn, vocab_size);
  }
  void FinishLive(FinishReason reason) override;
  bool done() const override { return done_; }
  const StoppingCriteria& stopping_criteria() const override {
    return stopping_criteria_;
  }
  void ForEachProgress(
      absl::FunctionRef<void(const StoppingCriteria::Progress&)> visit)
      const override;
  TokenTree::Node node(int rank) const override;
  // By mean log-probability; ties in the order of samples.
  std::vector<Hypothesis> Hypotheses() const override;
  const TokenTree& tree() const override { return tree_; }
  std::vector<SequenceState> States() const override;

 private:
  using Sample = GrowingSequence;

  // Returns the number of tokens that a live sample has generated.
  int NumGenerated(int sample) const { return samples_[sample].length; }
  // Returns the number of tokens of a draft before one that ends the sample or
  // may not follow.
  //   makes_lists  false: also before one after which the list of legal tokens
  //                takes long
  size_t LengthOfDraft(const Sample& sample, std::span<const TokenId> draft,
                       bool makes_lists) const;
  // Returns the error for `drawn`, which is no token. With several samples it
  // has no token count, because drafts determine which sample fails first.
  absl::Status NoToken(TokenId drawn, int sample_idx) const;
  // True if a sample only appends the token `drawn` from row `rank`.
  bool GoesOn(const Candidate& drawn, int rank, const Sample& sample,
              int vocab_size) const {
    return drawn.beam == rank && drawn.token >= 0 && drawn.token < vocab_size &&
           std::isfinite(drawn.cum_log_prob) &&
           sample.length + 1 < max_new_tokens_ &&
           stopping_criteria_.IsIdle(drawn.token);
  }
  // ContinueAll for `num_live` samples, which are all live ones; the second one
  // handles any number and is not inlined.
  bool ContinueSamples(std::span<const Candidate> drawn, int num_live,
                       int vocab_size);
  bool ContinueManySamples(std::span<const Candidate> drawn, int vocab_size);
  // Advance by one token of each sample, without decisions.
  void AdvanceByOne(std::span<const Candidate> drawn);
  // Advance for any result.
  absl::Status AdvanceByRuns(const SelectionResult& result,
                             std::vector<Decision>* decisions);
  // Appends tokens of `run` to a sample until one ends it. Returns the number
  // of appended tokens.
  int GrowBy(std::span<const Candidate> run, int first_candidate, int sample,
             std::vector<Decision>* decisions);
  // Records that the sample of a rank ended. `node` was its path before the
  // step, which gave it `num_tokens` tokens.
  void OnEnd(size_t rank, TokenTree::Node node, size_t num_tokens);
  // Shrinks the list of live samples.
  void ShrinkLive(size_t num_live);
  Decision DecisionOn(int candidate_idx, TokenTree::Node parent,
                      const Sample& sample) const;
  // Returns the mean log-probability; 0 without a token.
  float ScoreOf(const Sample& sample) const;
  Hypothesis HypothesisOf(const Sample& sample) const;

  // Members that each step reads come first.
  std::vector<Sample> samples_;
  SmallVector<int> live_;  // samples, ascending
  const int max_new_tokens_;
  const int num_return_sequences_;
  const bool length_counts_eos_;
  bool is_forked_ = false;  // the first step has a result
  bool done_ = false;
  TokenTree tree_;
  const StoppingCriteria stopping_criteria_;
};

// UpdateUnrestricted and ContinueSamples run for most groups at each step.
inline void SampleStrategy::UpdateUnrestricted(PlanSelection* selection) const {
  const std::span<const int> live = live_;
  const Sample* const samples = samples_.data();
  float* const cum_log_probs = selection->cum_log_probs.data();
  const auto update = [&](size_t rank) {
    cum_log_probs[rank] = samples[live[rank]].cum_log_prob;
  };
  update(0);  // usually the only one
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

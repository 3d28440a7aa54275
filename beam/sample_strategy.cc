#include "beam/sample_strategy.h"

#include <algorithm>
#include <numeric>
#include <ranges>
#include <utility>

#include "base/check.h"
#include "beam/describe_rows.h"
#include "beam/length_penalty.h"
#include "beam/selection_options.h"

namespace espalier {

SampleStrategy::SampleStrategy(
    const GenerationParams& params,
    std::shared_ptr<const AllowedSequenceTrie> allowed,
    std::shared_ptr<const RequestText> text)
    : num_return_sequences_(SaturateToInt(params.num_return_sequences)),
      max_new_tokens_(SaturateToInt(params.max_new_tokens.value())),
      stopping_criteria_(params, std::move(allowed), std::move(text)),
      samples_(NumSequences(params)),
      live_(samples_.size()) {
  for (Sample& sample : samples_) sample.progress = stopping_criteria_.Begin();
  std::iota(live_.begin(), live_.end(), 0);
}

void SampleStrategy::DescribeSelection(PlanSelection* selection) const {
  CHECK(!done_) << "the request is done";
  const size_t num_rows = num_generated_ == 0 ? 1 : live_.size();
  DescribeRows(live_ | std::views::take(num_rows) |
                   std::views::transform(
                       [this](int i) -> const Sample& { return samples_[i]; }),
               stopping_criteria_, selection);
  selection->num_candidates = 1;
  selection->num_generated = num_generated_;
  selection->samples = live_;
}

absl::StatusOr<std::vector<Continuation>> SampleStrategy::Advance(
    const SelectionResult& result, std::vector<Decision>* decisions) {
  CHECK(!done_) << "the request is done";
  CHECK_EQ(result.candidates.size(), live_.size()) << "tokens drawn";
  for (const Candidate& drawn : result.candidates) {
    if (drawn.token >= 0) continue;
    done_ = true;
    return drawn.token == kNotANumber ? NotANumber(num_generated_)
                                      : AllTokensMasked(num_generated_);
  }
  const bool is_last = ++num_generated_ >= max_new_tokens_;
  std::vector<Continuation> continuations;
  std::vector<int> next;
  for (size_t i = 0; i < live_.size(); ++i) {
    const Candidate& drawn = result.candidates[i];
    Sample& sample = samples_[live_[i]];
    const TokenTree::Node parent = sample.node;
    Grow(drawn, is_last, stopping_criteria_, &tree_, &sample);
    if (decisions != nullptr) {
      decisions->push_back(DecisionOn(static_cast<int>(i), parent, sample));
    }
    if (!sample.finish_reason.has_value()) {
      continuations.push_back({drawn.beam, drawn.token});
      next.push_back(live_[i]);
    }
  }
  live_ = std::move(next);
  done_ = live_.empty();
  return continuations;
}

TokenTree::Node SampleStrategy::node(int rank) const {
  return samples_[live_[rank]].node;
}

Decision SampleStrategy::DecisionOn(int candidate_idx, TokenTree::Node parent,
                                    const Sample& sample) const {
  Decision decision = {.candidate_idx = candidate_idx,
                       .what = Decision::What::kKept,
                       .why = "drawn",
                       .parent = parent,
                       .node = sample.node};
  if (sample.finish_reason.has_value()) {
    decision.what = Decision::What::kFinished;
    decision.why = NameOf(*sample.finish_reason);
    decision.score = MeanLogProb(sample.cum_log_prob, num_generated_);
  }
  return decision;
}

Hypothesis SampleStrategy::HypothesisOf(const Sample& sample) const {
  std::vector<TokenId> tokens = tree_.Path(sample.node);
  const int length = static_cast<int>(tokens.size());
  return {.tokens = std::move(tokens),
          .score = MeanLogProb(sample.cum_log_prob, length),
          .cum_log_prob = sample.cum_log_prob,
          .finish_reason = *sample.finish_reason};
}

std::vector<Hypothesis> SampleStrategy::Hypotheses() const {
  std::vector<Hypothesis> hypotheses;
  for (const Sample& sample : samples_) {
    if (!sample.finish_reason.has_value()) continue;
    hypotheses.push_back(HypothesisOf(sample));
  }
  std::ranges::stable_sort(hypotheses, [](const auto& a, const auto& b) {
    return a.score > b.score;
  });
  if (std::ssize(hypotheses) > num_return_sequences_) {
    hypotheses.resize(num_return_sequences_);
  }
  return hypotheses;
}

std::vector<SequenceState> SampleStrategy::States() const {
  std::vector<SequenceState> states;
  for (const Sample& sample : samples_) {
    const int length = tree_.depth(sample.node);
    const float score =
        length > 0 ? MeanLogProb(sample.cum_log_prob, length) : 0.0f;
    states.push_back(
        {sample.node, sample.cum_log_prob, score, sample.finish_reason});
  }
  return states;
}

}  // namespace espalier

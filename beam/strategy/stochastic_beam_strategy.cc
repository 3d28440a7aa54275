#include "beam/strategy/stochastic_beam_strategy.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "beam/strategy/describe_rows.h"
#include "beam/strategy/selection_options.h"
#include "kernels/gumbel_topk/gumbel_topk.h"

namespace espalier {
StochasticBeamStrategy::StochasticBeamStrategy(
    const GenerationParams& params,
    std::shared_ptr<const Constraint> constraint,
    std::shared_ptr<const RequestText> text)
    : num_beams_(SaturateToInt(params.num_beams)),
      num_return_sequences_(SaturateToInt(params.num_return_sequences)),
      max_new_tokens_(SaturateToInt(params.max_new_tokens.value())),
      seed_(params.seed.value_or(0)),
      stopping_criteria_(params, std::move(constraint), std::move(text)),
      beam_(1),
      live_(1) {
  beam_[0].progress = stopping_criteria_.Begin();
}

void StochasticBeamStrategy::DescribeSelection(PlanSelection* selection) const {
  CHECK(!done_) << "the request is done";
  DescribeRows(
      live_.size(),
      [this](size_t row) -> const Sequence& { return beam_[live_[row]]; },
      stopping_criteria_, selection);
  selection->num_generated = num_generated_;
  // One more than live, whose sum is the threshold.
  KeepAcrossRows kept = {.count = num_beams_ + 1};
  if (num_generated_ > 0) {
    for (const int i : live_) kept.maxima.push_back(beam_[i].gumbel_top_k);
  }
  selection->choice = RowSelection{.num_candidates = num_beams_ + 1,
                                   .gumbel_top_k = true,
                                   .ranking = std::move(kept)};
}

absl::Status StochasticBeamStrategy::Advance(const SelectionResult& result,
                                             std::vector<Decision>* decisions) {
  CHECK(!done_) << "the request is done";
  continuations_.clear();
  done_ = true;  // reset below if the search continues
  RETURN_IF_ERROR(CheckNumbers(result.candidates, num_generated_));
  const std::vector<Contender> contenders = Contenders(result.candidates);
  if (contenders.empty()) return AllTokensMasked(num_generated_);
  EndAll(live_.size());
  ++num_generated_;
  std::vector<Sequence> next;
  for (const Contender& contender : contenders) {
    const bool is_cut = next.size() == num_beams_;
    if (is_cut) {
      threshold_ = std::max(threshold_.value_or(contender.gumbel_top_k),
                            contender.gumbel_top_k);
    } else {
      next.push_back(contender.is_child
                         ? ChildOf(result.candidates[contender.idx],
                                   contender.gumbel_top_k)
                         : beam_[contender.idx]);
    }
    if (decisions == nullptr || !contender.is_child) continue;
    decisions->push_back(
        DecisionOn(result, contender.idx, is_cut ? nullptr : &next.back()));
  }
  beam_ = std::move(next);
  GoOn();
  return absl::OkStatus();
}

std::vector<StochasticBeamStrategy::Contender>
StochasticBeamStrategy::Contenders(
    std::span<const Candidate> candidates) const {
  std::vector<Contender> contenders;
  for (size_t i = 0; i < beam_.size(); ++i) {
    if (!beam_[i].finish_reason.has_value()) continue;
    contenders.push_back({beam_[i].gumbel_top_k, static_cast<int>(i), false});
  }
  size_t first = 0;
  while (first < candidates.size()) {
    size_t end = first + 1;
    const int row = candidates[first].beam;
    while (end < candidates.size() && candidates[end].beam == row) ++end;
    AddChildren(candidates.subspan(first, end - first), static_cast<int>(first),
                &contenders);
    first = end;
  }
  std::ranges::stable_sort(contenders, [](const auto& a, const auto& b) {
    return a.gumbel_top_k > b.gumbel_top_k;
  });
  return contenders;
}

void StochasticBeamStrategy::AddChildren(
    std::span<const Candidate> candidates, int first_idx,
    std::vector<Contender>* contenders) const {
  const int rank = candidates.front().beam;
  std::vector<double> gumbel_top_k;
  AddNoise(candidates, seed_, rank, num_generated_, &gumbel_top_k);
  const double maximum = *std::ranges::max_element(gumbel_top_k);
  const bool is_root = num_generated_ == 0;
  for (size_t i = 0; i < gumbel_top_k.size(); ++i) {
    const double sum = is_root
                           ? gumbel_top_k[i]
                           : ShiftToMaximum(gumbel_top_k[i], maximum,
                                            beam_[live_[rank]].gumbel_top_k);
    contenders->push_back({sum, first_idx + static_cast<int>(i), true});
  }
}

StochasticBeamStrategy::Sequence StochasticBeamStrategy::ChildOf(
    const Candidate& candidate, double gumbel_top_k) {
  Sequence child = beam_[live_[candidate.beam]];
  Grow(candidate, num_generated_ >= max_new_tokens_, stopping_criteria_, &tree_,
       &child);
  child.gumbel_top_k = gumbel_top_k;
  child.from = {candidate.beam, candidate.token};
  return child;
}

Decision StochasticBeamStrategy::DecisionOn(const SelectionResult& result,
                                            int candidate_idx,
                                            const Sequence* child) const {
  const Candidate& candidate = result.candidates[candidate_idx];
  Decision decision = {.candidate_idx = candidate_idx,
                       .why = "below the beams",
                       .parent = beam_[live_[candidate.beam]].node};
  if (child == nullptr) return decision;
  decision.what = Decision::What::kKept;
  decision.why = "among the beams";
  decision.node = child->node;
  if (child->finish_reason.has_value()) {
    decision.what = Decision::What::kFinished;
    decision.why = NameOf(*child->finish_reason);
    decision.score = static_cast<float>(child->gumbel_top_k);
  }
  return decision;
}

void StochasticBeamStrategy::GoOn() {
  live_.clear();
  for (size_t i = 0; i < beam_.size(); ++i) {
    if (beam_[i].finish_reason.has_value()) continue;
    live_.push_back(static_cast<int>(i));
    continuations_.push_back(beam_[i].from);
  }
  done_ = live_.empty();
  if (!done_) ended_.clear();
}

// A prefix has the highest sum of the sequences that begin with it. So prefixes
// of one length, and sequences that ended before, are a valid sample.
void StochasticBeamStrategy::FinishLive(FinishReason reason) {
  CHECK(!done_ && num_generated_ > 0) << "nothing was generated";
  done_ = true;
  for (const int i : live_) {
    Sequence& sequence = beam_[i];
    sequence.finish_reason =
        stopping_criteria_.AtEnd(sequence.progress, reason);
  }
  live_.clear();
}

void StochasticBeamStrategy::ForEachProgress(
    absl::FunctionRef<void(const StoppingCriteria::Progress&)> visit) const {
  for (const int i : live_) visit(beam_[i].progress);
}

TokenTree::Node StochasticBeamStrategy::node(int rank) const {
  return beam_[live_[rank]].node;
}

std::vector<Hypothesis> StochasticBeamStrategy::Hypotheses() const {
  std::vector<Hypothesis> hypotheses;
  for (const Sequence& sequence : beam_) {
    if (std::ssize(hypotheses) == num_return_sequences_) break;
    if (!sequence.finish_reason.has_value()) continue;
    hypotheses.push_back({.tokens = tree_.Path(sequence.node),
                          .score = static_cast<float>(sequence.gumbel_top_k),
                          .cum_log_prob = sequence.cum_log_prob,
                          .finish_reason = *sequence.finish_reason});
  }
  return hypotheses;
}

// Returns the whole beam: a sequence moves up when a better one cannot
// continue.
std::vector<SequenceState> StochasticBeamStrategy::States() const {
  std::vector<SequenceState> states;
  for (const Sequence& sequence : beam_) {
    states.push_back({sequence.node, sequence.cum_log_prob,
                      static_cast<float>(sequence.gumbel_top_k),
                      sequence.finish_reason});
  }
  std::ranges::stable_partition(states, [](const SequenceState& state) {
    return !state.finish_reason.has_value();
  });
  if (done_ && std::ssize(states) > num_return_sequences_) {
    states.resize(num_return_sequences_);
  }
  return states;
}

}  // namespace espalier

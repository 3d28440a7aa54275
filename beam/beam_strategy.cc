#include "beam/beam_strategy.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "beam/selection_options.h"

namespace espalier {

BeamStrategy::BeamStrategy(const GenerationParams& params)
    : num_beams_(SaturateToInt(params.num_beams)),
      num_return_sequences_(SaturateToInt(params.num_return_sequences)),
      length_penalty_(params.length_penalty),
      early_stopping_(params.early_stopping),
      finish_rule_(params),
      finished_(num_beams_),
      live_(1) {}

void BeamStrategy::DescribeSelection(PlanSelection* selection) const {
  CHECK(!done_) << "the request is done";
  // Even if as many candidates as possible end in an EOS, num_beams do not.
  const int64_t factor =
      std::max<int64_t>(2, 1 + finish_rule_.token_ids().size());
  selection->num_rows = static_cast<int>(live_.size());
  selection->num_candidates = SaturateToInt(factor * num_beams_);
  selection->num_generated = num_generated_;
  selection->cum_log_probs.clear();
  for (const LiveBeam& beam : live_) {
    selection->cum_log_probs.push_back(beam.cum_log_prob);
  }
}

absl::StatusOr<std::vector<Continuation>> BeamStrategy::Advance(
    const SelectionResult& result, std::vector<Decision>* decisions) {
  CHECK(!done_) << "the request is done";
  const std::span<const Candidate> candidates = result.candidates;
  if (candidates.empty() && finished_.beams().empty()) {
    done_ = true;
    return NoTokenPossible(num_generated_);
  }
  ++num_generated_;
  std::vector<Continuation> continuations = Rank(candidates, decisions);
  done_ = live_.empty() || !CanImprove() ||
          (early_stopping_ == EarlyStopping::kTrue && finished_.full());
  if (done_) continuations.clear();
  return continuations;
}

std::vector<Continuation> BeamStrategy::Rank(
    std::span<const Candidate> candidates, std::vector<Decision>* decisions) {
  std::vector<Continuation> continuations;
  std::vector<LiveBeam> next;
  for (size_t rank = 0; rank < candidates.size(); ++rank) {
    const Candidate& candidate = candidates[rank];
    CHECK(candidate.beam >= 0 && candidate.beam < live_.size())
        << "candidate of beam " << candidate.beam << " of " << live_.size();
    Decision decision = {.candidate_idx = static_cast<int>(rank),
                         .why = "below the beams",
                         .parent = live_[candidate.beam].node};
    const std::optional<FinishReason> hit =
        finish_rule_.ReasonFor(candidate.token, num_generated_);
    if (hit.has_value() && rank < num_beams_) {
      const FinishedBeam finished = Finish(candidate, *hit);
      decision.what = Decision::What::kFinished;
      decision.why = NameOf(*hit);
      decision.node = finished.node;
      decision.score = finished.score;
    } else if (!hit.has_value() && next.size() < num_beams_) {
      next.push_back({Append(candidate), candidate.cum_log_prob});
      continuations.push_back({candidate.beam, candidate.token});
      decision.what = Decision::What::kKept;
      decision.why = "among the beams";
      decision.node = next.back().node;
    }
    if (decisions != nullptr) decisions->push_back(decision);
  }
  live_ = std::move(next);
  return continuations;
}

TokenTree::Node BeamStrategy::Append(const Candidate& candidate) {
  return tree_.Append(live_[candidate.beam].node, candidate.token);
}

FinishedBeam BeamStrategy::Finish(const Candidate& candidate,
                                  FinishReason reason) {
  const FinishedBeam finished = {
      .node = Append(candidate),
      .score = LengthPenalizedScore(candidate.cum_log_prob, num_generated_,
                                    length_penalty_),
      .cum_log_prob = candidate.cum_log_prob,
      .finish_reason = reason,
  };
  finished_.Add(finished);
  return finished;
}

bool BeamStrategy::CanImprove() const {
  if (!finished_.full()) return true;
  const bool at_full_length =
      early_stopping_ == EarlyStopping::kNever && length_penalty_ > 0;
  const int length =
      at_full_length ? finish_rule_.max_new_tokens() : num_generated_;
  const float best =
      LengthPenalizedScore(live_.front().cum_log_prob, length, length_penalty_);
  return best > finished_.worst_score();
}

void BeamStrategy::AppendTokens(int rank, std::vector<TokenId>* tokens) const {
  tree_.AppendPath(live_[rank].node, tokens);
}

std::vector<Hypothesis> BeamStrategy::Hypotheses() const {
  std::vector<Hypothesis> hypotheses;
  for (const FinishedBeam& beam : finished_.beams()) {
    if (hypotheses.size() == num_return_sequences_) break;
    hypotheses.push_back({.tokens = tree_.Path(beam.node),
                          .score = beam.score,
                          .cum_log_prob = beam.cum_log_prob,
                          .finish_reason = beam.finish_reason});
  }
  return hypotheses;
}

}  // namespace espalier

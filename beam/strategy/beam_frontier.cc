#include "beam/strategy/beam_frontier.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "beam/strategy/assign_each.h"
#include "beam/strategy/selection_options.h"

namespace espalier {
namespace {

Decision KeptDecision(int candidate_idx, TokenTree::Node parent,
                      TokenTree::Node node) {
  return {.candidate_idx = candidate_idx,
          .what = Decision::What::kKept,
          .why = "among the beams",
          .parent = parent,
          .node = node};
}

Decision FinishedDecision(int candidate_idx, TokenTree::Node parent,
                          const FinishedBeam& finished) {
  return {.candidate_idx = candidate_idx,
          .what = Decision::What::kFinished,
          .why = NameOf(finished.finish_reason),
          .parent = parent,
          .node = finished.node,
          .score = finished.score};
}

Decision BelowDecision(int candidate_idx, TokenTree::Node parent) {
  return {.candidate_idx = candidate_idx,
          .why = "below the beams",
          .parent = parent};
}

// Changes the decision on a kept beam that ranks below the others to pruned.
void Drop(const LiveBeam& beam, const BeamFrontier::Step& step) {
  if (step.decisions == nullptr) return;
  for (Decision& decision : *step.decisions) {
    if (decision.what == Decision::What::kKept &&
        decision.candidate_idx == beam.candidate_idx) {
      decision = BelowDecision(decision.candidate_idx, decision.parent);
    }
  }
}

void Record(const BeamFrontier::Step& step, const Decision& decision) {
  if (step.decisions != nullptr) step.decisions->push_back(decision);
}

// Sorts by falling sum, stably. Most inputs are sorted already, and sorting
// allocates memory.
void SortBySum(std::vector<LiveBeam>* beams) {
  const auto ranks_before = [](const LiveBeam& a, const LiveBeam& b) {
    return a.cum_log_prob > b.cum_log_prob;
  };
  if (std::ranges::is_sorted(*beams, ranks_before)) return;
  std::ranges::stable_sort(*beams, ranks_before);
}

}  // namespace

void RankAsGiven(std::span<const Candidate> candidates,
                 std::vector<RankedCandidate>* ranked) {
  ranked->resize(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    (*ranked)[i] = {candidate, candidate.beam, static_cast<int>(i)};
  }
}

BeamFrontier::BeamFrontier(int num_beams, int pool_capacity,
                           const StoppingCriteria* criteria,
                           const LengthPenalty* penalty, TokenTree* tree,
                           std::vector<int>* parent_ranks)
    : num_beams_(num_beams),
      criteria_(criteria),
      penalty_(penalty),
      tree_(tree),
      parent_ranks_(parent_ranks),
      finished_(pool_capacity),
      live_(1) {
  live_[0].progress = criteria->Begin();
}

void BeamFrontier::Advance(std::span<const RankedCandidate> candidates,
                           const Step& step) {
  next_.clear();
  for (size_t rank = 0; rank < candidates.size(); ++rank) {
    const RankedCandidate& ranked = candidates[rank];
    CHECK(ranked.beam >= 0 && ranked.beam < live_.size())
        << "candidate of beam " << ranked.beam << " of " << live_.size();
    const bool may_finish = rank < num_beams_;
    const bool may_live =
        !step.is_last && (step.are_drawn || next_.size() < num_beams_);
    // No candidate that ranks later may finish or live, either.
    if (!may_finish && !may_live && step.decisions == nullptr) break;
    if (Take(ranked, step, may_finish, may_live, &next_)) continue;
    if (step.decisions == nullptr) continue;
    Record(step, BelowDecision(ranked.candidate_idx, live_[ranked.beam].node));
  }
  SortBySum(&next_);
  while (next_.size() > num_beams_) {
    Drop(next_.back(), step);
    next_.pop_back();
  }
  live_.swap(next_);
}

bool BeamFrontier::Take(const RankedCandidate& ranked, const Step& step,
                        bool may_finish, bool may_live,
                        std::vector<LiveBeam>* next) {
  if (!may_finish && !may_live) return false;
  const auto& [candidate, beam, candidate_idx] = ranked;
  const TokenTree::Node parent = live_[beam].node;
  // Constructed in place. A move would load it in wider pieces than it was
  // stored in, which stalls the processor (store forwarding).
  LiveBeam& live = next->emplace_back();
  live.progress = live_[beam].progress;
  StoppingCriteria::Outcome outcome =
      criteria_->Feed(candidate.token, &live.progress);
  if (step.is_last && !outcome.hit)
    outcome.hit = criteria_->AtFullLength(live.progress);
  const bool finishes = may_finish && outcome.hit.has_value();
  const bool lives = may_live && outcome.goes_on;
  if (!finishes && !lives) {
    next->pop_back();
    return false;
  }
  const TokenTree::Node node = tree_->Append(parent, candidate.token);
  if (parent_ranks_ != nullptr) parent_ranks_->push_back(beam);
  if (finishes) {
    Record(step, FinishedDecision(candidate_idx, parent,
                                  Finish(node, candidate.cum_log_prob,
                                         step.length, *outcome.hit)));
  }
  if (!lives) {
    next->pop_back();
    return true;
  }
  live.node = node;
  live.cum_log_prob = candidate.cum_log_prob;
  live.from = {candidate.beam, candidate.token};
  live.candidate_idx = candidate_idx;
  if (step.decisions != nullptr) {
    Record(step, KeptDecision(candidate_idx, parent, node));
  }
  return true;
}

void BeamFrontier::FinishAll(const Step& step) {
  for (const LiveBeam& beam : live_) {
    Record(step, FinishedDecision(
                     beam.candidate_idx, tree_->parent(beam.node),
                     Finish(beam.node, beam.cum_log_prob, step.length,
                            criteria_->AtEnd(beam.progress, step.reason))));
  }
  live_.clear();
}

FinishedBeam BeamFrontier::Finish(TokenTree::Node node, float cum_log_prob,
                                  int length, FinishReason reason) {
  const FinishedBeam finished = {
      .node = node,
      .score = penalty_->FinalScore(cum_log_prob, length,
                                    criteria_->IsEnd(tree_->token(node))),
      .cum_log_prob = cum_log_prob,
      .finish_reason = reason,
  };
  finished_.Add(finished);
  return finished;
}

namespace {

int64_t NumUnconstrained(size_t num_ends, int64_t num_beams) {
  return std::max<int64_t>(2, 1 + num_ends) * num_beams;
}

}  // namespace

int NumCandidates(std::span<const LiveBeam> beams,
                  const StoppingCriteria& criteria, int num_beams) {
  if (!criteria.restricts()) {
    return SaturateToInt(
        NumUnconstrained(criteria.token_ids().size(), num_beams));
  }
  int64_t num_legal = 0;
  int64_t num_last = 0;
  for (const LiveBeam& beam : beams) {
    const Constraint::Legal legal = criteria.LegalTokens(beam.progress);
    num_legal += std::ssize(legal.tokens);
    num_last += legal.num_last;
  }
  // If no candidate can continue, only candidates that finish are needed.
  int64_t count = num_beams;
  if (num_legal > num_last) count += num_last;
  return SaturateToInt(
      std::clamp<int64_t>(count, 1, std::max<int64_t>(1, num_legal)));
}

int64_t MaxNumCandidates(const GenerationParams& params,
                         const Constraint* constraint, int64_t num_beams) {
  return constraint != nullptr
             ? num_beams + constraint->MaxLast(num_beams)
             : NumUnconstrained(FinishingTokenIds(params).size(), num_beams);
}

void AssignContinuations(std::span<const LiveBeam> beams,
                         Continuations* continuations) {
  AssignEach(
      beams.size(), [&](size_t rank) { return beams[rank].from; },
      continuations);
}

std::vector<Hypothesis> HypothesesOf(std::span<const FinishedBeam> beams,
                                     int count, const TokenTree& tree) {
  std::vector<Hypothesis> hypotheses;
  for (const FinishedBeam& beam : beams) {
    if (std::ssize(hypotheses) == count) break;
    hypotheses.push_back({.tokens = tree.Path(beam.node),
                          .score = beam.score,
                          .cum_log_prob = beam.cum_log_prob,
                          .finish_reason = beam.finish_reason});
  }
  return hypotheses;
}

void AppendStates(std::span<const LiveBeam> beams, int length,
                  const LengthPenalty& penalty,
                  std::vector<SequenceState>* states) {
  for (const LiveBeam& beam : beams) {
    const float score =
        length > 0 ? penalty.Score(beam.cum_log_prob, length) : 0.0f;
    states->push_back({beam.node, beam.cum_log_prob, score, std::nullopt});
  }
}

void AppendStates(std::span<const FinishedBeam> beams, int count,
                  std::vector<SequenceState>* states) {
  for (const FinishedBeam& beam : beams) {
    if (count-- <= 0) break;
    states->push_back(
        {beam.node, beam.cum_log_prob, beam.score, beam.finish_reason});
  }
}

}  // namespace espalier

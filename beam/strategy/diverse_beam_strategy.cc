#include "beam/strategy/diverse_beam_strategy.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "beam/strategy/describe_rows.h"
#include "beam/strategy/selection_options.h"

namespace espalier {

DiverseBeamStrategy::DiverseBeamStrategy(
    const GenerationParams& params,
    std::shared_ptr<const Constraint> constraint,
    std::shared_ptr<const RequestText> text)
    : num_beams_(SaturateToInt(params.num_beams)),
      group_size_(num_beams_ / SaturateToInt(params.num_beam_groups)),
      num_return_sequences_(SaturateToInt(params.num_return_sequences)),
      max_new_tokens_(SaturateToInt(params.max_new_tokens.value())),
      diversity_penalty_(params.diversity_penalty),
      length_penalty_(params),
      search_termination_(params, group_size_),
      stopping_criteria_(params, std::move(constraint), std::move(text)) {
  CHECK_EQ(num_beams_ % group_size_, 0) << "beams in groups";
  for (int g = 0; g < num_beams_ / group_size_; ++g) {
    groups_.emplace_back(group_size_, search_termination_.pool_capacity(),
                         &stopping_criteria_, &length_penalty_, &tree_);
  }
}

// A row's best candidates remain best except those that earlier groups chose,
// so the number of candidates grows by the number of tokens that these can
// choose. Groups may be at equal states of a constraint, so each counts the
// tokens that end a sequence there separately.
void DiverseBeamStrategy::DescribeSelection(PlanSelection* selection) const {
  CHECK(!done_) << "the request is done";
  std::vector<LiveBeam> rows = LiveBeams();
  if (num_generated_ == 0) rows.resize(1);
  DescribeRows(
      rows.size(), [&](size_t row) -> const LiveBeam& { return rows[row]; },
      stopping_criteria_, selection);
  int64_t num_own = 1;
  for (const BeamFrontier& group : groups_) {
    num_own = std::max<int64_t>(
        num_own, NumCandidates(group.live(), stopping_criteria_, group_size_));
  }
  selection->num_generated = num_generated_;
  RowSelection& choice = selection->Choose<RowSelection>();
  choice.num_candidates = SaturateToInt(num_own + num_beams_ - group_size_);
  if (!stopping_criteria_.is_by_token()) return;
  const std::span<const TokenId> eos_token_ids = stopping_criteria_.token_ids();
  selection->eos_token_ids.assign(eos_token_ids.begin(), eos_token_ids.end());
  choice.ranking = KeepEachBlock{.blocks = RowsOfGroups(),
                                 .num_chosen = group_size_,
                                 .penalty = diversity_penalty_};
}

int64_t DiverseBeamStrategy::MaxNumCandidates(const GenerationParams& params,
                                              const Constraint* constraint) {
  const int64_t group_size = params.num_beams / params.num_beam_groups;
  return espalier::MaxNumCandidates(params, constraint, group_size) +
         params.num_beams - group_size;
}

std::vector<RowBlock> DiverseBeamStrategy::RowsOfGroups() const {
  std::vector<RowBlock> rows;
  int first_row = 0;
  for (const BeamFrontier& group : groups_) {
    if (group.live().empty()) continue;
    const int num_rows = static_cast<int>(group.live().size());
    rows.push_back({.first_row = first_row,
                    .num_rows = num_rows,
                    .count = NumCandidates(group.live(), stopping_criteria_,
                                           group_size_)});
    if (num_generated_ > 0) first_row += num_rows;
  }
  return rows;
}

std::vector<LiveBeam> DiverseBeamStrategy::LiveBeams() const {
  std::vector<LiveBeam> beams;
  for (const BeamFrontier& group : groups_) {
    beams.insert(beams.end(), group.live().begin(), group.live().end());
  }
  return beams;
}

absl::Status DiverseBeamStrategy::Advance(const SelectionResult& result,
                                          std::vector<Decision>* decisions) {
  CHECK(!done_) << "the request is done";
  continuations_.clear();
  const std::vector<RowBlock> rows_of_groups = RowsOfGroups();
  EndAll(LiveBeams().size());
  ++num_generated_;
  TokenChoices choices;
  auto rows = rows_of_groups.begin();
  for (BeamFrontier& group : groups_) {
    if (group.live().empty()) continue;
    const std::vector<RankedCandidate> candidates =
        Penalised(*rows++, result.candidates, choices);
    AdvanceGroup(&group, candidates, decisions, &choices);
  }
  const std::vector<LiveBeam> live = LiveBeams();
  done_ = live.empty();
  if (done_ && Hypotheses().empty()) return AllTokensMasked(num_generated_ - 1);
  if (!done_) ended_.clear();
  AssignContinuations(live, &continuations_);
  return absl::OkStatus();
}

// The result is in the order of rows.
std::vector<RankedCandidate> DiverseBeamStrategy::Penalised(
    const RowBlock& group, std::span<const Candidate> answer,
    const TokenChoices& choices) const {
  std::vector<RankedCandidate> candidates;
  for (auto [candidate, idx] :
       BestPenalised(answer, group, choices, diversity_penalty_)) {
    const int row = candidate.beam;
    candidate.beam += group.first_row;
    candidates.push_back({candidate, row, idx});
  }
  return candidates;
}

void DiverseBeamStrategy::AdvanceGroup(
    BeamFrontier* group, std::span<const RankedCandidate> candidates,
    std::vector<Decision>* decisions, TokenChoices* choices) {
  const BeamFrontier::Step step = {.length = num_generated_,
                                   .decisions = decisions};
  group->Advance(candidates, step);
  for (const LiveBeam& beam : group->live()) ++(*choices)[beam.from.token];
  if (!candidates.empty() &&
      search_termination_.Ends(group->finished(),
                               candidates.front().candidate.cum_log_prob,
                               num_generated_)) {
    group->Clear();
  }
  // Comes last, because a group that has ended by now has no beams to finish by
  // length.
  if (num_generated_ >= max_new_tokens_) group->FinishAll(step);
}

void DiverseBeamStrategy::FinishLive(FinishReason reason) {
  CHECK(!done_ && num_generated_ > 0) << "nothing was generated";
  done_ = true;
  for (BeamFrontier& group : groups_) {
    group.FinishAll({.length = num_generated_, .reason = reason});
  }
}

void DiverseBeamStrategy::ForEachProgress(
    absl::FunctionRef<void(const StoppingCriteria::Progress&)> visit) const {
  for (const BeamFrontier& group : groups_) {
    for (const LiveBeam& beam : group.live()) visit(beam.progress);
  }
}

TokenTree::Node DiverseBeamStrategy::node(int rank) const {
  for (const BeamFrontier& group : groups_) {
    const int num_live = static_cast<int>(group.live().size());
    if (rank < num_live) return group.live()[rank].node;
    rank -= num_live;
  }
  CHECK(false) << "no beam of this rank lives";
  return TokenTree::kRoot;
}

std::vector<FinishedBeam> DiverseBeamStrategy::Finished() const {
  std::vector<FinishedBeam> all;
  for (const BeamFrontier& group : groups_) {
    const std::vector<FinishedBeam>& beams = group.finished().beams();
    all.insert(all.end(), beams.begin(), beams.end());
  }
  std::ranges::stable_sort(
      all, [](const auto& a, const auto& b) { return a.score > b.score; });
  return all;
}

std::vector<Hypothesis> DiverseBeamStrategy::Hypotheses() const {
  return HypothesesOf(Finished(), num_return_sequences_, tree_);
}

// A better hypothesis replaces each one that leaves a pool, so none moves up.
std::vector<SequenceState> DiverseBeamStrategy::States() const {
  std::vector<SequenceState> states;
  AppendStates(LiveBeams(), num_generated_, length_penalty_, &states);
  AppendStates(Finished(), num_return_sequences_, &states);
  return states;
}

}  // namespace espalier

// SequenceGroup, part: requests drafts and feeds them, as
// beam/drafts/draft_choice.h decides, and updates them when a result arrives.
// sequence_group_plan.cc writes the rows.
#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "beam/sequence_group.h"

namespace espalier {
namespace {

// Returns the number of tokens that the last result gave each of `num_samples`
// samples, by rank. REQUIRES: this number of samples lived when it arrived, or
// `num_samples` is 0; it was not the first result, whose ends are not in
// ended().
std::vector<int> NumTokensGiven(const DecodeStrategy& strategy,
                                size_t num_samples) {
  std::vector<int> counts(num_samples);
  if (counts.empty()) return counts;
  for (const Continuation& sample : strategy.continuations()) {
    DCHECK(size_t(sample.parent_rank) < counts.size());
    counts[sample.parent_rank] = sample.num_tokens;
  }
  for (const EndedSequence& sample : strategy.ended()) {
    DCHECK(size_t(sample.rank) < counts.size());
    counts[sample.rank] = sample.num_tokens;
  }
  return counts;
}

}  // namespace

bool SequenceGroup::CanDraftAhead() const {
  if (num_unanswered_ != 1 || !drafts_.can_go_on() ||
      !strategy_->supports_async_scheduling()) {
    return false;
  }
  // A draft model drafted for the running step, for each of its rows.
  const bool has_all = drafts_.is_waiting() && in_flight_.has_all();
  if (in_flight_.num_running() == 0 && !has_all) return false;
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    const int num_left = strategy_->max_draft_tokens(rank);
    if (num_left < in_flight_.MaxAccepted(rank) + 2) return false;
  }
  return true;
}

DraftSequence SequenceGroup::DraftOf(int rank, int num_tokens,
                                     const PlanSelection& selection) {
  if (prompt_ == nullptr) {
    prompt_ =
        std::make_shared<const std::vector<TokenId>>(request_.prompt_tokens);
  }
  DraftSequence sequence = {
      .request = id_,
      .sample = is_beam_search() ? rank : selection.samples[rank],
      .prompt = prompt_,
      .num_tokens = num_tokens,
      .params = selection_params_,
      .cum_log_prob = selection.cum_log_probs[rank]};
  strategy_->AppendTokens(rank, &sequence.generated);
  return sequence;
}

void SequenceGroup::RequestDrafts(const DraftChoice& choice, StepPlan* plan) {
  const PlanSelection& selection = Asked();  // names the samples
  std::shared_ptr<const DraftedSearch> search;
  if (is_beam_search()) {
    search = std::make_shared<const DraftedSearch>(
        DraftedSearch{.num_beams = pages_.num_slots(),
                      .num_candidates = selection.num_candidates,
                      .eos_token_ids = finishing_token_ids_});
  }
  const std::vector<int> counts = choice.NumTokensToAsk();
  num_asked_pages_ = choice.NumPagesToVerify(counts);
  std::vector<RequestedDraft> asked;
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    if (counts[rank] == 0) continue;
    plan->drafting.push_back(DraftOf(rank, counts[rank], selection));
    plan->drafting.back().search = search;
    asked.push_back({rank, counts[rank]});
  }
  was_planned_ = true;
  drafts_.OnAsk(std::move(asked));
}

absl::Status SequenceGroup::PlanDrafted(const DraftChoice& choice,
                                        StepPlan* plan) {
  const std::vector<int> counts = choice.NumTokensToAsk();
  std::vector<std::vector<TokenId>> drafts;
  for (const int count : counts) drafts.emplace_back(count);
  const int first_row = static_cast<int>(plan->rows.size());
  const int selection_idx = static_cast<int>(plan->selections.size());
  RETURN_IF_ERROR(
      PlanDrafts(std::move(drafts), *std::ranges::max_element(counts), plan));
  const PlanSelection& selection = plan->selections[selection_idx];
  std::vector<RequestedDraft> asked;
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    if (counts[rank] == 0) continue;
    plan->drafting.push_back(DraftOf(rank, counts[rank], selection));
    plan->drafting.back().verified_by = {
        .plan_row = first_row + rank, .selection = selection_idx, .rank = rank};
    asked.push_back({rank, counts[rank]});
  }
  drafts_.OnAsk(std::move(asked));
  return absl::OkStatus();
}

absl::Status SequenceGroup::PlanBeams(const DraftRoom& draft_room,
                                      StepPlan* plan) {
  const DraftChoice choice = ChoiceIn(draft_room);
  if (drafts_.has_to_ask() && choice.IsTooLong()) drafts_.TurnOff();
  if (!drafts_.is_on()) return PlanTokens(plan);
  if (choice.HasToAsk()) {
    if (choice.DraftsBeforeStep()) return PlanDrafted(choice, plan);
    RequestDrafts(choice, plan);
    return absl::OkStatus();
  }
  if (PathRows paths = choice.Paths(); !paths.empty()) {
    return PlanPaths(std::move(paths), plan);
  }
  if (auto drafts = choice.Tokens(); !drafts.empty()) {
    return PlanDrafts(std::move(drafts), drafts_.max_draft_tokens(), plan);
  }
  return PlanTokens(plan);
}

absl::Status SequenceGroup::TakeDrafts(std::span<DraftedTokens> drafts,
                                       int vocab_size) {
  RETURN_IF_ERROR(drafts_.Validate(drafts, vocab_size));
  drafts_.Take(drafts);
  if (!in_flight_.drafted().empty()) TakeDraftsOfStep();
  return absl::OkStatus();
}

// Truncates pages, which were planned for the requested number of tokens.
void SequenceGroup::TakeDraftsOfStep() {
  const std::vector<std::vector<TokenId>> planned = in_flight_.drafted();
  in_flight_.Feed(drafts_.TakeForStep(static_cast<int>(planned.size())));
  if (is_preempted()) return;
  for (int rank = 0; rank < std::ssize(planned); ++rank) {
    const int num_missing = static_cast<int>(planned[rank].size() -
                                             in_flight_.drafted()[rank].size());
    if (num_missing == 0) continue;
    pages_.Truncate(rank, pages_.sequence(rank).num_tokens() - num_missing);
  }
}

void SequenceGroup::ApplyDrafts(const SelectionResult& result,
                                std::span<const Continuation> beams,
                                bool is_last) {
  if (is_beam_search()) return ApplyPaths(result, beams, is_last);
  const DraftsInFlight::Counts counts = in_flight_.Take(result);
  const std::vector<int>& drafted = counts.drafted;
  if (counts.were_ahead) {
    const bool is_behind = result.num_drafted.empty();
    drafts_.TakeAhead(is_behind || std::ranges::any_of(drafted, [](int count) {
                        return count > 0;
                      }));
  }
  std::vector<int> accepted;
  for (size_t rank = 0; rank < drafted.size(); ++rank) {
    accepted.push_back(result.num_tokens[rank] - 1);
  }
  const int longest = drafted.empty() ? 0 : *std::ranges::max_element(drafted);
  const bool is_unverified = result.has_unverified_drafts && longest > 0;
  if (is_unverified) {
    drafts_.RecordUnverified(longest);
  } else {
    drafts_.Record(drafted, accepted,
                   NumTokensGiven(*strategy_, drafted.size()));
  }
  if ((drafted.empty() || is_unverified) && might_draft()) {
    drafts_.RecordUndrafted(num_live_beams());
  }
  if (strategy_->done()) return;
  have_one_length_ = HaveOneLength(beams.size());
  if (!drafted.empty() && !is_preempted()) {
    for (const Continuation& beam : beams) {
      const int rank = beam.parent_rank;
      const int num_rejected = counts.planned[rank] - accepted[rank];
      pages_.Truncate(rank, pages_.sequence(rank).num_tokens() - num_rejected);
    }
  }
  AdvanceDrafters(beams);
}

void SequenceGroup::ApplyPaths(const SelectionResult& result,
                               std::span<const Continuation> beams,
                               bool is_last) {
  const bool ends = strategy_->done();
  if (!is_last && !ends) replay_->Follow(beams);
  if (is_last || ends) {
    const bool is_unverified =
        replay_ != nullptr && result.has_unverified_drafts;
    if (is_unverified) {
      drafts_.RecordUnverified(replay_->num_steps_drafted());
    } else {
      drafts_.RecordPaths(replay_.get());
    }
    // All beams count as one sequence.
    if ((replay_ == nullptr || is_unverified) && might_draft()) {
      drafts_.RecordUndrafted(1);
    }
  }
  if (!ends) AdvanceDrafters(beams);
}

void SequenceGroup::AdvanceDrafters(std::span<const Continuation> beams) {
  if (!drafts_.reads_history()) return;
  std::vector<int> parents;
  std::vector<std::vector<TokenId>> tokens;
  for (size_t rank = 0; rank < beams.size(); ++rank) {
    parents.push_back(beams[rank].parent_rank);
    tokens.push_back(
        LastTokens(static_cast<int>(rank), beams[rank].num_tokens));
  }
  drafts_.Advance(parents, tokens);
}

}  // namespace espalier

#include "beam/group_speculation.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "beam/strategy/selection_options.h"
#include "beam/validate_result.h"

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

GroupSpeculation::GroupSpeculation(const Request* request,
                                   const GroupSearch* search, GroupPages* pages,
                                   GroupPlanWriter* writer,
                                   std::unique_ptr<Drafter> drafter)
    : request_(request),
      search_(search),
      pages_(pages),
      writer_(writer),
      finishing_token_ids_(FinishingTokenIds(request->params)),
      drafts_(request->params, strategy().supports_drafts(),
              std::move(drafter)) {
  enabled_ = drafts_.can_draft();
}

int GroupSpeculation::NumWaitsToDraft() const {
  const bool is_by_model = drafts_.is_by_model();
  if (is_by_model && !is_beam_search() && strategy().supports_late_drafts()) {
    return 0;
  }
  return (CanRunAhead(strategy(), *writer_->params()) ? 1 : 0) +
         (is_by_model ? 1 : 0);
}

bool GroupSpeculation::CanVerifyAhead() const {
  if (!CanRunAhead(strategy(), *writer_->params())) return false;
  // A draft model drafts in the running step, for each of its rows.
  if (!in_flight_.all_are_made_in_step()) return false;
  for (int rank = 0; rank < pages_->num_sequences(); ++rank) {
    const int num_left = strategy().max_draft_tokens(rank);
    if (num_left < in_flight_.MaxAccepted(rank) + 2) return false;
  }
  return true;
}

absl::Status GroupSpeculation::PlanDraftsAhead(const DraftRoom& room,
                                               StepPlan* plan) {
  const int count = NumAhead(room);
  CHECK_GE(count, 1) << "drafts of request " << writer_->id();
  const std::vector<int> counts(pages_->num_sequences(), count);
  const size_t num_copies = plan->page_copies.size();
  const size_t first_row = plan->rows.size();
  RETURN_IF_ERROR(PlanDrafted(counts, plan));
  CHECK_EQ(plan->page_copies.size(), num_copies) << "copies of shared tails";
  PlanSelection& selection = plan->selections.Edit(plan->selections.size() - 1);
  DrawSelection& draws = selection.EditDraws();
  draws.drafts.is_ahead = true;
  ++selection.num_generated;
  for (int& num_generated : draws.row_num_generated) ++num_generated;
  const auto num_prompt = static_cast<int>(request_->prompt_tokens.size());
  for (int rank = 0; rank < pages_->num_sequences(); ++rank) {
    plan->rows[first_row + rank].first_position =
        num_prompt + search_->LengthOf(rank);
  }
  in_flight_.FeedAhead(count);
  return absl::OkStatus();
}

absl::StatusOr<bool> GroupSpeculation::Plan(const DraftRoom& room,
                                            StepPlan* plan) {
  const DraftChoice choice = ChoiceIn(room);
  if (drafts_.has_to_ask() && choice.IsTooLong()) drafts_.TurnOff();
  if (!drafts_.is_on()) return false;
  if (choice.HasToAsk()) {
    if (choice.DraftsBeforeStep()) {
      std::vector<int> counts = choice.NumTokensToAsk();
      RETURN_IF_ERROR(PlanDrafted(counts, plan));
      in_flight_.FeedLater(std::move(counts));
    } else {
      RequestDrafts(choice, plan);
    }
    return true;
  }
  if (PathRows paths = choice.Paths(); !paths.empty()) {
    RETURN_IF_ERROR(PlanPaths(std::move(paths), plan));
    return true;
  }
  if (auto drafts = choice.Tokens(); !drafts.empty()) {
    RETURN_IF_ERROR(PlanDrafts(drafts, drafts_.max_draft_tokens(), plan));
    in_flight_.Feed(std::move(drafts));
    return true;
  }
  return false;
}

absl::Status GroupSpeculation::PlanDrafts(
    std::vector<std::vector<TokenId>> drafts, int max_draft_tokens,
    StepPlan* plan) {
  std::vector<int> num_tokens;
  for (const std::vector<TokenId>& draft : drafts) {
    num_tokens.push_back(1 + static_cast<int>(draft.size()));
  }
  RETURN_IF_ERROR(pages_->Append(num_tokens, &plan->page_copies));
  writer_->OnPlanned();
  const int first_logits = plan->num_logits;
  for (int rank = 0; rank < pages_->num_sequences(); ++rank) {
    writer_->AddRow(pages_->sequence(rank),
                    {std::span(&search_->LastToken(rank), 1), drafts[rank]},
                    num_tokens[rank], plan);
  }
  PlanSelection& selection = plan->selections.emplace_back(
      writer_->SelectFrom(first_logits, *search_, *pages_));
  SampleDrafts& verified = selection.EditDraws().drafts;
  verified.logits = drafts_.Logits(drafts);
  verified.max_tokens = max_draft_tokens;
  strategy().DescribeDrafts(std::move(drafts), &selection);
  drafts_.OnPlan(/*verifies=*/true);
  return absl::OkStatus();
}

absl::Status GroupSpeculation::PlanPaths(PathRows drafts, StepPlan* plan) {
  const std::vector<int> num_tokens = drafts.num_tokens();
  RETURN_IF_ERROR(pages_->AppendRows(drafts.ranks, num_tokens, plan));
  writer_->OnPlanned();
  const int first_logits = plan->num_logits;
  for (size_t row = 0; row < drafts.ranks.size(); ++row) {
    writer_->AddRow(pages_->row(static_cast<int>(row)),
                    {std::span(&search_->LastToken(drafts.ranks[row]), 1),
                     drafts.drafts[row]},
                    num_tokens[row], plan);
  }
  replay_ =
      std::make_unique<DraftReplay>(pages_->num_sequences(), std::move(drafts));
  DescribePaths(&plan->selections.emplace_back(
      writer_->SelectFrom(first_logits, *search_, *pages_)));
  drafts_.OnPlan(/*verifies=*/true);
  return absl::OkStatus();
}

DraftSequence GroupSpeculation::DraftOf(int rank, int num_tokens,
                                        const PlanSelection& selection) {
  if (prompt_ == nullptr) {
    prompt_ =
        std::make_shared<const std::vector<TokenId>>(request_->prompt_tokens);
  }
  DraftSequence sequence = {
      .request = writer_->id(),
      .sample = is_beam_search() ? rank : selection.as_draws()->samples[rank],
      .prompt = prompt_,
      .num_tokens = num_tokens,
      .params = writer_->params(),
      .constraint = strategy().stopping_criteria().constraint(),
      .cum_log_prob = selection.cum_log_probs[rank]};
  strategy().AppendTokens(rank, &sequence.generated);
  return sequence;
}

void GroupSpeculation::RequestDrafts(const DraftChoice& choice,
                                     StepPlan* plan) {
  const PlanSelection& selection =  // names the samples
      writer_->Selection(*search_, *pages_);
  std::shared_ptr<const DraftedSearch> search;
  if (is_beam_search()) {
    search = std::make_shared<const DraftedSearch>(
        DraftedSearch{.num_beams = pages_->num_slots(),
                      .num_candidates = selection.num_candidates(),
                      .eos_token_ids = finishing_token_ids_});
  }
  const std::vector<int> counts = choice.NumTokensToAsk();
  num_asked_pages_ = choice.NumPagesToVerify(counts);
  std::vector<ConstraintPlace> places;  // by rank
  strategy().ForEachProgress([&](const StoppingCriteria::Progress& progress) {
    places.push_back(StoppingCriteria::PlaceOf(progress));
  });
  std::vector<RequestedDraft> asked;
  for (int rank = 0; rank < pages_->num_sequences(); ++rank) {
    if (counts[rank] == 0) continue;
    plan->drafting.push_back(DraftOf(rank, counts[rank], selection));
    plan->drafting.back().search = search;
    plan->drafting.back().place = places[rank];
    asked.push_back({rank, counts[rank]});
  }
  writer_->OnPlanned();
  drafts_.OnAsk(std::move(asked));
}

absl::Status GroupSpeculation::PlanDrafted(std::span<const int> counts,
                                           StepPlan* plan) {
  std::vector<std::vector<TokenId>> drafts;
  for (const int count : counts) drafts.emplace_back(count);
  const int first_row = static_cast<int>(plan->rows.size());
  const int selection_idx = static_cast<int>(plan->selections.size());
  RETURN_IF_ERROR(
      PlanDrafts(std::move(drafts), *std::ranges::max_element(counts), plan));
  const PlanSelection& selection = plan->selections[selection_idx];
  for (int rank = 0; rank < pages_->num_sequences(); ++rank) {
    if (counts[rank] == 0) continue;
    plan->drafting.push_back(DraftOf(rank, counts[rank], selection));
    plan->drafting.back().verified_by = {
        .plan_row = first_row + rank, .selection = selection_idx, .rank = rank};
  }
  return absl::OkStatus();
}

absl::Status GroupSpeculation::TakeDrafts(std::span<DraftedTokens> drafts,
                                          int vocab_size) {
  RETURN_IF_ERROR(drafts_.Validate(drafts, vocab_size));
  drafts_.Take(drafts);
  return absl::OkStatus();
}

absl::Status GroupSpeculation::ValidateResult(const SelectionResult& result,
                                              int vocab_size) {
  const int num_sequences = pages_->num_sequences();
  RETURN_IF_ERROR(in_flight_.CheckNumDrafted(result));
  PlanSelection& asked = writer_->EditSelection(*search_, *pages_);
  if (!in_flight_.drafted().empty()) {
    strategy().DescribeDrafts(in_flight_.drafted(), &asked);
  }
  if (in_flight_.are_made_in_step()) {
    strategy().DescribeDrafts(
        DraftsInFlight::DraftedInStep(result, num_sequences), &asked);
  }
  if (replay_ != nullptr) DescribePaths(&asked);
  const absl::Status status =
      espalier::ValidateResult(asked, result, vocab_size,
                               replay_ != nullptr ? &replay_->tree() : nullptr);
  if (asked.kind() == SelectionKind::kBeams) {
    asked.EditBeams().paths = {};
  } else if (asked.kind() == SelectionKind::kDraws) {
    asked.EditDraws().drafts = {};
  }
  return status;
}

void GroupSpeculation::DescribePaths(PlanSelection* selection) const {
  selection->EditBeams().paths = replay_->drafts();
}

void GroupSpeculation::Advance(const SelectionResult& result, bool is_last,
                               bool might_draft) {
  if (drafts_.can_draft()) {
    writer_->InvalidateRows();
    return is_beam_search() ? ApplyPaths(result, is_last, might_draft)
                            : ApplyDrafts(result, might_draft);
  }
  if (have_one_length_) return;
  // Drafts were turned off.
  writer_->InvalidateRows();
  have_one_length_ = search_->HaveOneLength(strategy().continuations().size());
}

void GroupSpeculation::ApplyDrafts(const SelectionResult& result,
                                   bool might_draft) {
  const int num_live =
      strategy().done() ? 0 : std::ssize(strategy().continuations());
  const DraftsInFlight::Counts counts = in_flight_.Take(result, num_live);
  const std::vector<int>& drafted = counts.drafted;
  if (counts.were_made_in_step) {
    const bool is_behind = result.num_drafted.empty();
    drafts_.OnMadeInStep(
        is_behind ||
        std::ranges::any_of(drafted, [](int count) { return count > 0; }));
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
                   NumTokensGiven(strategy(), drafted.size()));
  }
  if ((drafted.empty() || is_unverified) && might_draft) {
    drafts_.RecordUndrafted(pages_->num_sequences());
  }
  if (strategy().done()) return;
  const std::span<const Continuation> live = strategy().continuations();
  have_one_length_ = search_->HaveOneLength(live.size());
  if (!drafted.empty() && !pages_->is_preempted()) {
    for (const Continuation& sample : live) {
      const int rank = sample.parent_rank;
      const int num_rejected = counts.planned[rank] - accepted[rank];
      pages_->Truncate(rank,
                       pages_->sequence(rank).num_tokens() - num_rejected);
    }
  }
  AdvanceDrafters();
}

void GroupSpeculation::ApplyPaths(const SelectionResult& result, bool is_last,
                                  bool might_draft) {
  const bool ends = strategy().done();
  if (!is_last && !ends) replay_->Follow(strategy().continuations());
  if (is_last || ends) {
    const bool is_unverified =
        replay_ != nullptr && result.has_unverified_drafts;
    if (is_unverified) {
      drafts_.RecordUnverified(replay_->num_steps_drafted());
    } else {
      drafts_.RecordPaths(replay_.get());
    }
    // All beams count as one sequence.
    if ((replay_ == nullptr || is_unverified) && might_draft) {
      drafts_.RecordUndrafted(1);
    }
  }
  if (!ends) AdvanceDrafters();
}

void GroupSpeculation::AdvanceDrafters() {
  if (!drafts_.reads_history()) return;
  const std::span<const Continuation> live = strategy().continuations();
  std::vector<int> parents;
  std::vector<std::vector<TokenId>> tokens;
  for (size_t rank = 0; rank < live.size(); ++rank) {
    parents.push_back(live[rank].parent_rank);
    tokens.push_back(
        search_->LastTokens(static_cast<int>(rank), live[rank].num_tokens));
  }
  drafts_.Advance(parents, tokens);
}

void GroupSpeculation::MergeRows(StepPlan* next_plan) {
  const auto num_prompt = static_cast<int>(request_->prompt_tokens.size());
  pages_->MergeRows(num_prompt + search_->LengthOf(0) - 1, next_plan);
  replay_ = nullptr;
}

}  // namespace espalier

// SequenceGroup, part: writes rows into plans, for the prompt, the sequences
// and drafts. sequence_group_drafts.cc chooses the drafts; sequence_group.cc
// applies results, and caches or releases pages.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "beam/sequence_group.h"
#include "beam/strategy/assign_each.h"
#include "beam/strategy/selection_options.h"

namespace espalier {

[[gnu::always_inline]] inline void SequenceGroup::AddRowOf(
    const Sequence& sequence, int num_tokens, int num_logits,
    StepPlan* plan) const {
  plan->rows.push_back({
      .sequence = sequence.id,
      .first_token = static_cast<int>(plan->tokens.size()),
      .num_tokens = num_tokens,
      .first_position = sequence.num_tokens() - num_tokens,
      .num_logits = num_logits,
      .first_logits = plan->num_logits,
      .source_length = source_length_,
  });
  plan->num_logits += num_logits;
  plan->page_indices.append(sequence.pages.page_ids());
  plan->page_indptr.push_back(static_cast<int>(plan->page_indices.size()));
}

inline void SequenceGroup::UpdateAsked(PlanSelection* asked) {
  is_asked_current_ = true;
  if (has_asked_rows_) {
    return draws_only_ != nullptr ? draws_only_->UpdateUnrestricted(asked)
                                  : strategy_->UpdateSelection(asked);
  }
  has_asked_rows_ = true;
  strategy_->DescribeSelection(asked);
  const std::span<const int> slots = pages_.slots();
  AssignEach(
      slots.size(), [&](size_t rank) { return slots[rank]; }, &asked->slots);
}

const PlanSelection& SequenceGroup::Asked() {
  if (!is_asked_current_) UpdateAsked(&EditShared(&asked_));
  return *asked_;
}

inline const PlanSelection& SequenceGroup::SelectFrom(int first_logits) {
  PlanSelection& selection = EditShared(&asked_);
  if (!is_asked_current_) UpdateAsked(&selection);
  selection.first_logits = first_logits;
  if (needs_history_) AddHistories(&selection);
  ++num_unanswered_;
  return selection;
}

void SequenceGroup::AddHistories(PlanSelection* selection) const {
  const size_t num_rows = num_live_beams();
  selection->histories.resize(num_rows);
  for (size_t rank = 0; rank < num_rows; ++rank) {
    selection->histories[rank].clear();
    strategy_->AppendTokens(static_cast<int>(rank),
                            &selection->histories[rank]);
  }
}

inline void SequenceGroup::AddSelection(int first_logits, StepPlan* plan) {
  SelectFrom(first_logits);
  plan->selections.push_back(asked_);
}

[[gnu::always_inline]] inline void SequenceGroup::AddTokenRow(
    int rank, TokenId token, StepPlan* plan) const {
  AddRowOf(pages_.sequence(rank), 1, 1, plan);
  plan->tokens.push_back(token);
}

[[gnu::noinline]] void SequenceGroup::AddTokenRows(
    std::span<const Continuation> live, StepPlan* plan) const {
  for (size_t rank = 0; rank < live.size(); ++rank) {
    AddTokenRow(static_cast<int>(rank), live[rank].token, plan);
  }
}

absl::Status SequenceGroup::PlanTokens(StepPlan* plan) {
  RETURN_IF_ERROR(pages_.AppendOneEach(&plan->page_copies));
  was_planned_ = true;
  AddSelection(plan->num_logits, plan);
  const std::span<const Continuation> live = strategy_->continuations();
  if (live.size() == 1) {  // the common case
    AddTokenRow(0, live[0].token, plan);
  } else {
    AddTokenRows(live, plan);
  }
  if (speculates_) drafts_.OnPlan(/*verifies=*/false);
  return absl::OkStatus();
}

bool SequenceGroup::CanPlanAhead() const {
  if (num_unanswered_ > 1) return false;
  if (CanDraftAhead()) return true;
  if (drafts_.is_on() || !in_flight_.empty() || replay_ != nullptr)
    return false;
  if (!have_one_length_) return false;
  // The step generates the token after the one whose result is outstanding.
  return LengthOf(0) + 2 <= *request_.params.max_new_tokens &&
         strategy_->supports_async_scheduling();
}

absl::Status SequenceGroup::PlanDraftsAhead(const DraftRoom& room,
                                            StepPlan* plan) {
  const int count = ChoiceIn(room).NumAhead(in_flight_);
  CHECK_GE(count, 1) << "drafts of request " << id_;
  const std::vector<int> num_tokens(num_live_beams(), 1 + count);
  const size_t num_copies = plan->page_copies.size();
  RETURN_IF_ERROR(pages_.Append(num_tokens, &plan->page_copies));
  CHECK_EQ(plan->page_copies.size(), num_copies) << "copies of shared tails";
  GroupContinuation continuation = {.request = id_,
                                    .num_candidates = Asked().num_candidates,
                                    .params = selection_params_,
                                    .drafts = {.num_tokens = count}};
  const int page_size = pages_.pool().page_size();
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    // Positions before the last known token do not change any more.
    const int64_t position =
        std::ssize(request_.prompt_tokens) + LengthOf(rank) - 1;
    const auto first = static_cast<int>(position / page_size);
    const auto pages = pages_.sequence(rank).pages.page_ids().subspan(first);
    continuation.drafts.slots.push_back(
        {.slot = pages_.slots()[rank],
         .first_place = first,
         .pages = {pages.begin(), pages.end()}});
  }
  plan->continuations.push_back(std::move(continuation));
  in_flight_.FeedAhead(count);
  ++num_unanswered_;
  return absl::OkStatus();
}

absl::Status SequenceGroup::PlanStep(int max_tokens, StepPlan* plan,
                                     int max_logits, int max_prefill_rows,
                                     const DraftRoom& draft_room) {
  CHECK(can_plan()) << "request " << id_ << " is done or has to wait";
  CHECK_GE(max_tokens, 1) << "tokens to feed";
  CHECK_GE(max_logits, 1) << "rows of logits";
  prefill_.OnPlan();
  const size_t num_copies = plan->page_copies.size();
  const absl::Status status =
      PlanRows(max_tokens, plan, max_logits, max_prefill_rows, draft_room);
  if (tracer_ != nullptr && status.ok()) {
    tracer_->RecordCopies(std::span(plan->page_copies).subspan(num_copies));
  }
  return status;
}

absl::Status SequenceGroup::PlanRows(int max_tokens, StepPlan* plan,
                                     int max_logits, int max_prefill_rows,
                                     const DraftRoom& draft_room) {
  if (prefilling()) {
    const int max_rows =
        EndsPrompt(max_tokens, max_logits) ? 1 : max_prefill_rows;
    CHECK_GE(max_rows, 1) << "rows of a prefill";
    if (is_walking()) {
      return PlanWalk(std::min(max_tokens, max_logits), max_logits, max_rows,
                      draft_room.num_pages, plan);
    }
    return PlanPrefill(max_tokens, max_logits, max_rows, plan);
  }
  if (has_to_draft()) return PlanDraftsAhead(draft_room, plan);
  if (outstanding()) return PlanNextAsync(plan);
  return drafts_.is_on() ? PlanBeams(draft_room, plan) : PlanTokens(plan);
}

bool SequenceGroup::EndsPrompt(int max_tokens, int max_logits) const {
  if (!prefilling() || !prefill_.feeds_prompt() || only_scores()) return false;
  const int64_t num_pending = prefill_.num_pending_tokens();
  return num_pending <= std::max(max_tokens, prefill_.NumTokensAtOnce()) &&
         (!request_.params.prompt_logprobs ||
          num_pending - NumNextWithoutLogits() <= max_logits);
}

int SequenceGroup::NumAskedAtOnceIn(int max_tokens) const {
  const bool leaves_prompt =
      prefill_.feeds_prompt() &&
      prefill_.num_pending_tokens() >
          std::max(max_tokens, prefill_.NumTokensAtOnce());
  return leaves_prompt ? 0 : max_asked_at_once();
}

int64_t SequenceGroup::NumNextWithoutLogits() const {
  const int64_t first =
      NumWithoutLogits(request_) + std::ssize(prompt_logprobs_);
  return std::max<int64_t>(first - pages_.sequence(0).num_tokens(), 0);
}

absl::Status SequenceGroup::PlanPrefill(int max_tokens, int max_logits,
                                        int max_rows, StepPlan* plan) {
  const bool is_prompt = prefill_.feeds_prompt();
  const bool is_scored = is_prompt && request_.params.prompt_logprobs;
  if (is_scored) {
    // Its last row may also score tokens after the prompt.
    const int num_scored = std::max(max_logits - max_asked_at_once(), 1);
    max_tokens = static_cast<int>(
        std::min<int64_t>(max_tokens, NumNextWithoutLogits() + num_scored));
  }
  const int first_logits = plan->num_logits;
  const auto add_row = [&](int rank, const TokenPath& tokens) {
    const Sequence& sequence = pages_.sequence(rank);
    const bool is_last =
        is_prompt && sequence.num_tokens() == request_.prompt_tokens.size();
    const int num_tokens = static_cast<int>(tokens.size());
    const int first = sequence.num_tokens() - num_tokens;
    if (first < source_length_) {
      plan->sources.push_back({static_cast<int>(plan->rows.size()), source_});
    }
    const bool is_asked = is_last && max_asked_at_once() != 0;
    const bool selects = is_last && !only_scores();
    AddRow(sequence, tokens,
           is_scored ? num_tokens - NumScored(first, num_tokens)
                     : (selects || is_asked ? 1 : 0),
           plan);
  };
  was_planned_ = true;
  RETURN_IF_ERROR(prefill_.Feed(max_tokens, max_rows, plan, add_row));
  const int num_logits_rows = plan->num_logits - first_logits;
  if (is_scored) AddScoring(first_logits, num_logits_rows, plan);
  if (is_prompt && prefill_.done() && only_scores()) {
    walk_->Begin();
    AddWalked(AllowedSequenceTrie::kRoot, first_logits + num_logits_rows - 1,
              plan);
  } else if (is_prompt && prefill_.done()) {
    AddSelection(first_logits + num_logits_rows - 1, plan);
    has_asked_rows_ = false;  // each sequence has a row from now on
  }
  return absl::OkStatus();
}

// Recomputed tokens may be scored already.
int SequenceGroup::NumScored(int first, int num_tokens) const {
  const int64_t num_scored =
      NumWithoutLogits(request_) + std::ssize(prompt_logprobs_) - first;
  return static_cast<int>(std::clamp<int64_t>(num_scored, 0, num_tokens));
}

// The last token of a prompt has no next token.
void SequenceGroup::AddScoring(int first_logits, int num_logits_rows,
                               StepPlan* plan) const {
  const std::span<const TokenId> prompt = request_.prompt_tokens;
  const int first = pages_.sequence(0).num_tokens() - num_logits_rows + 1;
  const int end = std::min<int>(first + num_logits_rows, std::ssize(prompt));
  if (first == end) return;
  plan->scorings.push_back(
      {.request = id_,
       .first_logits = first_logits,
       .tokens = {prompt.begin() + first, prompt.begin() + end},
       .num_logprobs = SaturateToInt(*request_.params.prompt_logprobs)});
}

void SequenceGroup::RewindWalk(StepPlan* plan) {
  const int num_tokens = static_cast<int>(std::ssize(request_.prompt_tokens) +
                                          std::ssize(walk_->stem()));
  if (pages_.has_rows()) {
    pages_.MergeRows(num_tokens, plan);
  } else {
    pages_.Truncate(0, num_tokens);
  }
}

void SequenceGroup::AddWalked(ContinuationWalk::Node node, int logits_row,
                              StepPlan* plan) const {
  // The one best token is the one that greedy search would choose.
  for (const TokenId token : walk_->TokensAfter(node)) {
    plan->scorings.push_back({.request = id_,
                              .first_logits = logits_row,
                              .tokens = {token},
                              .num_logprobs = 1});
  }
}

absl::Status SequenceGroup::PlanWalk(int max_tokens, int max_asked,
                                     int max_rows, int64_t num_pages,
                                     StepPlan* plan) {
  RewindWalk(plan);
  const std::vector<WalkRow> rows =
      walk_->Take({.num_tokens = max_tokens,
                   .num_rows = max_rows,
                   .num_logprob_queries = max_asked,
                   .num_pages = num_pages,
                   .stem_end = pages_.sequence(0).num_tokens(),
                   .page_size = pages_.pool().page_size()});
  std::vector<int> num_tokens;
  for (const WalkRow& row : rows) {
    num_tokens.push_back(static_cast<int>(row.tokens.size()));
  }
  const std::vector<int> ranks(rows.size(), 0);
  RETURN_IF_ERROR(pages_.AppendRows(ranks, num_tokens, plan));
  was_planned_ = true;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int first_logits = plan->num_logits;
    AddRow(pages_.row(static_cast<int>(i)), {rows[i].tokens}, num_tokens[i],
           plan);
    for (int j = 0; j < num_tokens[i]; ++j) {
      AddWalked(rows[i].nodes[j], first_logits + j, plan);
    }
  }
  return absl::OkStatus();
}

absl::Status SequenceGroup::PlanDrafts(std::vector<std::vector<TokenId>> drafts,
                                       int max_draft_tokens, StepPlan* plan) {
  std::vector<int> num_tokens;
  for (const std::vector<TokenId>& draft : drafts) {
    num_tokens.push_back(1 + static_cast<int>(draft.size()));
  }
  RETURN_IF_ERROR(pages_.Append(num_tokens, &plan->page_copies));
  was_planned_ = true;
  const int first_logits = plan->num_logits;
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    AddRow(pages_.sequence(rank),
           {std::span(&LastToken(rank), 1), drafts[rank]}, num_tokens[rank],
           plan);
  }
  PlanSelection& selection =
      plan->selections.emplace_back(SelectFrom(first_logits));
  in_flight_.Feed(drafts);
  selection.draft_logits = drafts_.Logits(drafts);
  selection.max_draft_tokens = max_draft_tokens;
  strategy_->DescribeDrafts(std::move(drafts), &selection);
  drafts_.OnPlan(/*verifies=*/true);
  return absl::OkStatus();
}

absl::Status SequenceGroup::PlanPaths(PathRows drafts, StepPlan* plan) {
  const std::vector<int> num_tokens = drafts.num_tokens();
  RETURN_IF_ERROR(pages_.AppendRows(drafts.ranks, num_tokens, plan));
  was_planned_ = true;
  const int first_logits = plan->num_logits;
  for (size_t row = 0; row < drafts.ranks.size(); ++row) {
    AddRow(pages_.row(static_cast<int>(row)),
           {std::span(&LastToken(drafts.ranks[row]), 1), drafts.drafts[row]},
           num_tokens[row], plan);
  }
  replay_ = std::make_unique<DraftReplay>(num_live_beams(), std::move(drafts));
  DescribePaths(&plan->selections.emplace_back(SelectFrom(first_logits)));
  drafts_.OnPlan(/*verifies=*/true);
  return absl::OkStatus();
}

absl::Status SequenceGroup::PlanNextAsync(StepPlan* plan) {
  const PlanSelection& selection = Asked();
  GroupContinuation continuation = {
      .request = id_,
      .position = PositionAhead(),
      .num_candidates = selection.num_candidates,
      .num_generated = selection.num_generated + 1,
      .params = selection_params_};
  ASSIGN_OR_RETURN(continuation.tail_pages, pages_.ReserveTails());
  plan->continuations.push_back(std::move(continuation));
  ++num_unanswered_;
  return absl::OkStatus();
}

int SequenceGroup::PositionAhead() const {
  const int position = pages_.sequence(0).num_tokens();
  for (int rank = 1; rank < num_live_beams(); ++rank) {
    CHECK_EQ(pages_.sequence(rank).num_tokens(), position)
        << "length of beam " << rank << " of request " << id_;
  }
  return position;
}

void SequenceGroup::AddRow(const Sequence& sequence, const TokenPath& tokens,
                           int num_logits, StepPlan* plan) const {
  AddRowOf(sequence, static_cast<int>(tokens.size()), num_logits, plan);
  plan->tokens.insert(plan->tokens.end(), tokens.head.begin(),
                      tokens.head.end());
  plan->tokens.insert(plan->tokens.end(), tokens.rest.begin(),
                      tokens.rest.end());
}

void SequenceGroup::DescribePaths(PlanSelection* selection) const {
  const PathRows& rows = replay_->drafts();
  selection->ranks.assign(rows.ranks.begin(), rows.ranks.end());
  selection->drafts = rows.drafts;
}

}  // namespace espalier

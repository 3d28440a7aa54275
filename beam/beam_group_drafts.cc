// The part of a group that drafts: what it asks for and what it feeds of that,
// and what becomes of drafts when an answer is there. beam_group_plan.cc writes
// the rows.
#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "beam/beam_group.h"

namespace espalier {

bool BeamGroup::CanDraftAhead() const {
  if (num_unanswered_ != 1 || !drafts_.can_go_on() ||
      !strategy_->supports_async_scheduling()) {
    return false;
  }
  // Drafts of the step that runs are a model's, and of all of its rows.
  const bool has_all =
      drafts_.is_waiting() && !drafted_.empty() &&
      std::ranges::none_of(drafted_, &std::vector<TokenId>::empty);
  if (num_drafts_running_ == 0 && !has_all) return false;
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    if (strategy_->max_draft_tokens(rank) < MaxAccepted(rank) + 2) return false;
  }
  return true;
}

int BeamGroup::MaxAccepted(int rank) const {
  return num_drafts_running_ > 0 ? num_drafts_running_
                                 : static_cast<int>(drafted_[rank].size());
}

// Pages are those of all that the two steps can feed.
int BeamGroup::NumDraftsAhead(const DraftRoom& room) const {
  const int num_samples = num_live_beams();
  int count = std::min(drafts_.num_tokens(), room.num_tokens / num_samples);
  for (int rank = 0; rank < num_samples; ++rank) {
    count = std::min(count, MaxTokensToAsk(rank, room) - MaxAccepted(rank) - 1);
  }
  for (; count > 0; --count) {
    const std::vector<int> num_tokens(num_samples, 1 + count);
    const int64_t num_pages = pages_.NumPagesToAppend(num_tokens);
    if (num_pages <= room.num_pages) break;
  }
  return std::max(count, 0);
}

bool BeamGroup::HasToAskForDrafts(const DraftRoom& room) const {
  if (!drafts_.has_to_ask() || room.num_tokens < 1) return false;
  // A plan that copies pages has rows (StepPlan::page_copies).
  if (!DraftsBeforeStep(room) && (!room.may_ask || pages_.has_moves())) {
    return false;
  }
  if (is_beam_search() && room.num_tokens < num_live_beams()) return false;
  return std::ranges::any_of(NumTokensToAsk(room),
                             [](int count) { return count > 0; });
}

int BeamGroup::MaxTokensToAsk(int rank, const DraftRoom& room) const {
  // Of what it drafts it does not feed the last.
  const int64_t num_left = int64_t{room.max_draft_context} + 1 -
                           std::ssize(request_.prompt_tokens) - LengthOf(rank);
  return static_cast<int>(
      std::min<int64_t>(strategy_->max_draft_tokens(rank), num_left));
}

bool BeamGroup::IsTooLongToDraft(const DraftRoom& room) const {
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    const int64_t num_tokens =
        std::ssize(request_.prompt_tokens) + LengthOf(rank);
    if (num_tokens <= room.max_draft_context) return false;
  }
  return true;
}

std::vector<int> BeamGroup::NumTokensToAsk(const DraftRoom& room) const {
  int max_tokens = drafts_.num_tokens();  // of each
  if (is_beam_search()) {
    max_tokens = std::min(max_tokens, room.num_tokens / num_live_beams());
  }
  // Of a later step: others go on meanwhile, and may begin a page.
  const int64_t num_spare = DraftsBeforeStep(room) ? 0 : 1;
  std::vector<int> counts(num_live_beams());
  for (; max_tokens > 0; --max_tokens) {
    int num_left = room.num_tokens;
    for (int rank = 0; rank < num_live_beams(); ++rank) {
      const int count =
          std::min({max_tokens, num_left, MaxTokensToAsk(rank, room)});
      counts[rank] = std::max(count, 0);
      num_left -= counts[rank];
    }
    const int64_t num_pages = NumPagesToVerify(counts);
    if (num_pages == 0 || num_pages + num_spare <= room.num_pages) {
      return counts;
    }
  }
  return std::vector<int>(num_live_beams());
}

int64_t BeamGroup::NumPagesToVerify(std::span<const int> counts) const {
  std::vector<int> num_tokens(num_live_beams(), 1);
  if (is_beam_search()) {
    ++num_tokens[0];
  } else {
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      num_tokens[rank] += counts[rank];
    }
  }
  return pages_.NumPagesToAppend(num_tokens) -
         pages_.NumPagesToAppend(OneEach());
}

DraftSequence BeamGroup::DraftOf(int rank, int num_tokens,
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

void BeamGroup::AskForDrafts(const DraftRoom& room, StepPlan* plan) {
  const PlanSelection& selection = Asked();  // which samples these are
  std::shared_ptr<const DraftedSearch> search;
  if (is_beam_search()) {
    search = std::make_shared<const DraftedSearch>(
        DraftedSearch{.num_beams = pages_.num_slots(),
                      .num_candidates = selection.num_candidates,
                      .eos_token_ids = finishing_token_ids_});
  }
  const std::vector<int> counts = NumTokensToAsk(room);
  num_asked_pages_ = NumPagesToVerify(counts);
  std::vector<AskedDraft> asked;
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    if (counts[rank] == 0) continue;
    plan->drafting.push_back(DraftOf(rank, counts[rank], selection));
    plan->drafting.back().search = search;
    asked.push_back({rank, counts[rank]});
  }
  was_planned_ = true;
  drafts_.OnAsk(std::move(asked));
}

bool BeamGroup::DraftsBeforeStep(const DraftRoom& room) const {
  // What may follow of allowed sequences depends on what is drafted.
  return room.drafts_before_steps && !is_beam_search() &&
         strategy_->supports_late_drafts();
}

absl::Status BeamGroup::PlanDrafted(const DraftRoom& room, StepPlan* plan) {
  const std::vector<int> counts = NumTokensToAsk(room);
  std::vector<std::vector<TokenId>> drafts;
  for (const int count : counts) drafts.emplace_back(count);
  const int first_row = static_cast<int>(plan->rows.size());
  const int selection_idx = static_cast<int>(plan->selections.size());
  RETURN_IF_ERROR(
      PlanDrafts(std::move(drafts), *std::ranges::max_element(counts), plan));
  const PlanSelection& selection = plan->selections[selection_idx];
  std::vector<AskedDraft> asked;
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

absl::Status BeamGroup::PlanBeams(const DraftRoom& draft_room, StepPlan* plan) {
  if (drafts_.has_to_ask() && IsTooLongToDraft(draft_room)) drafts_.TurnOff();
  if (!drafts_.is_on()) return PlanTokens(plan);
  if (HasToAskForDrafts(draft_room)) {
    if (DraftsBeforeStep(draft_room)) return PlanDrafted(draft_room, plan);
    AskForDrafts(draft_room, plan);
    return absl::OkStatus();
  }
  if (DraftRows paths = DraftPaths(draft_room); !paths.empty()) {
    return PlanPaths(std::move(paths), plan);
  }
  if (auto drafts = Draft(draft_room); !drafts.empty()) {
    return PlanDrafts(std::move(drafts), drafts_.max_draft_tokens(), plan);
  }
  return PlanTokens(plan);
}

DraftRows BeamGroup::DraftPaths(const DraftRoom& room) const {
  if (room.num_tokens < 1 || !is_beam_search()) return {};
  const int num_beams = num_live_beams();
  const int64_t num_pages = room.num_pages + pages_.NumPagesToAppend(OneEach());
  return ChooseDraftRows(
      CutAtEnds(drafts_.DraftPaths(num_beams, strategy_->max_draft_tokens(0)),
                finishing_token_ids_),
      num_beams, [&](const DraftRows& rows) {
        return rows.num_drafted(num_beams) <= room.num_tokens &&
               pages_.NumPagesToAppendRows(rows.ranks, rows.num_tokens()) <=
                   num_pages;
      });
}

std::vector<std::vector<TokenId>> BeamGroup::Draft(
    const DraftRoom& room) const {
  if (room.num_tokens < 1 || is_beam_search()) return {};
  std::vector<int> max_tokens;
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    max_tokens.push_back(strategy_->max_draft_tokens(rank));
  }
  std::vector<std::vector<TokenId>> drafts = strategy_->CutDrafts(
      drafts_.Draft(max_tokens, room.num_tokens), drafts_.are_drawn());
  std::vector<int> num_tokens(num_live_beams(), 1);
  const int64_t num_pages = pages_.NumPagesToAppend(num_tokens);
  int num_drafted = 0;
  for (size_t rank = 0; rank < drafts.size(); ++rank) {
    // Whether drafts are verified must not depend on what was drawn.
    num_tokens[rank] +=
        drafts_.are_drawn()
            ? std::min(drafts_.max_draft_tokens(), max_tokens[rank])
            : static_cast<int>(drafts[rank].size());
    num_drafted += static_cast<int>(drafts[rank].size());
  }
  const bool fits =
      pages_.NumPagesToAppend(num_tokens) <= num_pages + room.num_pages;
  if (num_drafted == 0 || !fits) return {};
  return drafts;
}

absl::Status BeamGroup::TakeDrafts(std::span<DraftedTokens> drafts,
                                   int vocab_size) {
  RETURN_IF_ERROR(drafts_.Validate(drafts, vocab_size));
  drafts_.Take(drafts);
  if (!drafted_.empty()) TakeDraftsOfStep();
  return absl::OkStatus();
}

// Pages were planned for as many tokens as were asked for.
void BeamGroup::TakeDraftsOfStep() {
  const std::vector<std::vector<TokenId>> planned = std::exchange(
      drafted_, drafts_.TakeForStep(static_cast<int>(drafted_.size())));
  if (is_away()) return;
  for (int rank = 0; rank < std::ssize(planned); ++rank) {
    const int num_missing =
        static_cast<int>(planned[rank].size() - drafted_[rank].size());
    if (num_missing == 0) continue;
    pages_.Truncate(rank, pages_.sequence(rank).num_tokens() - num_missing);
  }
}

absl::Status BeamGroup::CheckNumDrafted(const SelectionResult& result) const {
  const std::vector<int>& counts = result.num_drafted;
  const auto is_wrong = [&](int count) {
    return count < 0 || count > num_drafts_running_;
  };
  const bool fits =
      counts.empty() || std::ssize(counts) == int64_t{num_live_beams()};
  if (fits && std::ranges::none_of(counts, is_wrong)) return absl::OkStatus();
  return Internal("num_drafted must be empty, or of ", num_live_beams(),
                  " samples, each in [0, ", num_drafts_running_, "], got ",
                  counts.size(), " numbers, the largest ",
                  counts.empty() ? 0 : *std::ranges::max_element(counts));
}

// Whether what was accepted is what was drafted is the executor's to know.
std::vector<std::vector<TokenId>> BeamGroup::DraftedAhead(
    const SelectionResult& result) const {
  std::vector<std::vector<TokenId>> drafts(num_live_beams());
  std::span<const Candidate> left = result.candidates;
  for (size_t rank = 0; rank < result.num_drafted.size(); ++rank) {
    std::vector<TokenId>& draft = drafts[rank];
    draft.resize(result.num_drafted[rank]);
    const int count =
        rank < result.num_tokens.size() ? result.num_tokens[rank] : 0;
    const size_t num_own = std::min<size_t>(std::max(count, 0), left.size());
    for (size_t i = 0; i < std::min(num_own, draft.size()); ++i) {
      draft[i] = left[i].token;
    }
    left = left.subspan(num_own);
  }
  return drafts;
}

void BeamGroup::ApplyDrafts(const SelectionResult& result,
                            std::span<const Continuation> beams, bool is_last) {
  if (is_beam_search()) return ApplyPaths(beams, is_last);
  std::vector<int> planned;  // of which pages are held
  const std::vector<int> drafted = TakeNumDrafted(result, &planned);
  std::vector<int> accepted;
  for (size_t rank = 0; rank < drafted.size(); ++rank) {
    accepted.push_back(result.num_tokens[rank] - 1);
  }
  // What was not verified was not rejected either.
  std::span<const int> verified = drafted;
  if (result.has_unverified_drafts) verified = {};
  drafts_.Record(verified, accepted);
  // The step of a prompt can have no drafts.
  const bool might_draft = num_steps_ > 1;
  if (verified.empty() && might_draft) {
    drafts_.RecordUndrafted(num_live_beams());
  }
  if (strategy_->done()) return;
  have_one_length_ = HaveOneLength(beams.size());
  std::vector<int> parents;
  std::vector<std::vector<TokenId>> tokens;
  for (size_t rank = 0; rank < beams.size(); ++rank) {
    const auto& [parent, token, num_tokens] = beams[rank];
    parents.push_back(parent);
    tokens.push_back(LastTokens(static_cast<int>(rank), num_tokens));
    if (!drafted.empty() && !is_away()) {
      const int num_rejected = planned[parent] - accepted[parent];
      pages_.Truncate(parent,
                      pages_.sequence(parent).num_tokens() - num_rejected);
    }
  }
  drafts_.Advance(parents, tokens);
}

std::vector<int> BeamGroup::TakeNumDrafted(const SelectionResult& result,
                                           std::vector<int>* planned) {
  std::vector<int> drafted;
  for (const std::vector<TokenId>& draft : std::exchange(drafted_, {})) {
    drafted.push_back(static_cast<int>(draft.size()));
  }
  *planned = drafted;
  const int num_ahead =
      std::exchange(num_drafts_running_, std::exchange(num_drafts_ahead_, 0));
  if (num_ahead == 0) return drafted;
  planned->assign(result.num_tokens.size(), num_ahead);
  drafted = result.num_drafted;
  drafted.resize(planned->size());
  const bool is_behind = result.num_drafted.empty();
  drafts_.TakeAhead(is_behind || std::ranges::any_of(drafted, [](int count) {
                      return count > 0;
                    }));
  return drafted;
}

void BeamGroup::ApplyPaths(std::span<const Continuation> beams, bool is_last) {
  const bool ends = strategy_->done();
  if (!is_last && !ends) replay_->Follow(beams);
  if (is_last || ends) drafts_.RecordPaths(replay_.get());
  if (ends) return;
  std::vector<int> parents;
  std::vector<std::vector<TokenId>> tokens;
  for (const Continuation& beam : beams) {
    parents.push_back(beam.parent_rank);
    tokens.push_back({beam.token});
  }
  drafts_.Advance(parents, tokens);
}

}  // namespace espalier

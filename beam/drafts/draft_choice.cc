#include "beam/drafts/draft_choice.h"

#include <algorithm>

namespace espalier {

int64_t DraftChoice::NumTokensOf(int rank) const {
  return std::ssize(request_.prompt_tokens) +
         strategy_.tree().depth(strategy_.node(rank));
}

bool DraftChoice::IsTooLong() const {
  for (int rank = 0; rank < num_sequences(); ++rank) {
    if (NumTokensOf(rank) <= room_.max_length) return false;
  }
  return true;
}

bool DraftChoice::HasToAsk() const {
  if (!drafts_.has_to_ask() || room_.num_tokens < 1) return false;
  // A plan that copies pages has rows (StepPlan::page_copies).
  if (!DraftsBeforeStep() && (!room_.may_ask || pages_.has_moves())) {
    return false;
  }
  if (is_beam_search() && room_.num_tokens < num_sequences()) return false;
  const bool has_room = std::ranges::any_of(
      NumTokensToAsk(), [](int count) { return count > 0; });
  return has_room && !AreAllForced();
}

bool DraftChoice::AreAllForced() const {
  if (!drafts_.reads_history() || is_beam_search()) return false;
  for (int rank = 0; rank < num_sequences(); ++rank) {
    if (MaxTokensToAsk(rank) > 0 && !drafts_.HasHistory(rank)) {
      return false;
    }
  }
  return true;
}

bool DraftChoice::DraftsBeforeStep() const {
  // With a constraint, the tokens that may follow depend on the drafts.
  return !is_beam_search() && strategy_.supports_late_drafts();
}

int DraftChoice::MaxTokensToAsk(int rank) const {
  // The draft model does not feed the last drafted token.
  const int64_t num_left = int64_t{room_.max_length} + 1 - NumTokensOf(rank);
  return static_cast<int>(
      std::min<int64_t>(strategy_.max_draft_tokens(rank), num_left));
}

std::vector<int> DraftChoice::NumTokensToAsk() const {
  int max_tokens = drafts_.num_tokens();  // per sequence
  if (is_beam_search()) {
    max_tokens = std::min(max_tokens, room_.num_tokens / num_sequences());
  }
  // Other groups run before a later step verifies, and may begin a page.
  const int64_t num_spare = DraftsBeforeStep() ? 0 : 1;
  std::vector<int> counts(num_sequences());
  for (; max_tokens > 0; --max_tokens) {
    int num_left = room_.num_tokens;
    for (int rank = 0; rank < num_sequences(); ++rank) {
      const int count = std::min({max_tokens, num_left, MaxTokensToAsk(rank)});
      counts[rank] = std::max(count, 0);
      num_left -= counts[rank];
    }
    const int64_t num_pages = NumPagesToVerify(counts);
    if (num_pages == 0 || num_pages + num_spare <= room_.num_pages) {
      return counts;
    }
  }
  return std::vector<int>(num_sequences());
}

int64_t DraftChoice::NumPagesToVerify(std::span<const int> counts) const {
  std::vector<int> num_tokens(num_sequences(), 1);
  const int64_t num_without = pages_.NumPagesToAppend(num_tokens);
  if (is_beam_search()) {
    ++num_tokens[0];
  } else {
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      num_tokens[rank] += counts[rank];
    }
  }
  return pages_.NumPagesToAppend(num_tokens) - num_without;
}

// Counts pages for all tokens that the two steps can feed.
int DraftChoice::NumAhead(const DraftsInFlight& in_flight) const {
  int count =
      std::min(drafts_.num_tokens(), room_.num_tokens / num_sequences());
  for (int rank = 0; rank < num_sequences(); ++rank) {
    count =
        std::min(count, MaxTokensToAsk(rank) - in_flight.MaxAccepted(rank) - 1);
  }
  for (; count > 0; --count) {
    const std::vector<int> num_tokens(num_sequences(), 1 + count);
    const int64_t num_pages = pages_.NumPagesToAppend(num_tokens);
    if (num_pages <= room_.num_pages) break;
  }
  return std::max(count, 0);
}

std::vector<std::vector<TokenId>> DraftChoice::Tokens() const {
  if (room_.num_tokens < 1 || is_beam_search()) return {};
  std::vector<int> max_tokens;
  for (int rank = 0; rank < num_sequences(); ++rank) {
    max_tokens.push_back(strategy_.max_draft_tokens(rank));
  }
  std::vector<std::vector<TokenId>> drafts = strategy_.CutDrafts(
      drafts_.Draft(max_tokens, room_.num_tokens), drafts_.are_drawn());
  std::vector<int> num_tokens(num_sequences(), 1);
  const int64_t num_pages = pages_.NumPagesToAppend(num_tokens);
  int num_drafted = 0;
  for (size_t rank = 0; rank < drafts.size(); ++rank) {
    // Verification must not depend on the sampled tokens.
    num_tokens[rank] +=
        drafts_.are_drawn()
            ? std::min(drafts_.max_draft_tokens(), max_tokens[rank])
            : static_cast<int>(drafts[rank].size());
    num_drafted += static_cast<int>(drafts[rank].size());
  }
  const bool fits =
      pages_.NumPagesToAppend(num_tokens) <= num_pages + room_.num_pages;
  if (num_drafted == 0 || !fits) return {};
  return drafts;
}

PathRows DraftChoice::Paths() const {
  if (room_.num_tokens < 1 || !is_beam_search()) return {};
  const int num_beams = num_sequences();
  const std::vector<int> one_each(num_beams, 1);
  const int64_t num_pages = room_.num_pages + pages_.NumPagesToAppend(one_each);
  return ChoosePathRows(
      CutAtEnds(drafts_.DraftPaths(num_beams, strategy_.max_draft_tokens(0)),
                finishing_token_ids_),
      num_beams, [&](const PathRows& rows) {
        return rows.num_drafted(num_beams) <= room_.num_tokens &&
               pages_.NumPagesToAppendRows(rows.ranks, rows.num_tokens()) <=
                   num_pages;
      });
}

}  // namespace espalier

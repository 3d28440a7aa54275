#include "beam/drafts/drafts_in_flight.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/status.h"

namespace espalier {

bool DraftsInFlight::has_all() const {
  return !drafted_.empty() &&
         std::ranges::none_of(drafted_, &std::vector<TokenId>::empty);
}

absl::Status DraftsInFlight::CheckNumDrafted(const SelectionResult& result,
                                             int num_sequences) const {
  const std::vector<int>& counts = result.num_drafted;
  const auto is_wrong = [&](int count) {
    return count < 0 || count > num_running_;
  };
  const bool fits =
      counts.empty() || std::ssize(counts) == int64_t{num_sequences};
  if (fits && std::ranges::none_of(counts, is_wrong)) return absl::OkStatus();
  return Internal("num_drafted must be empty, or of ", num_sequences,
                  " samples, each in [0, ", num_running_, "], got ",
                  counts.size(), " numbers, the largest ",
                  counts.empty() ? 0 : *std::ranges::max_element(counts));
}

// Only the executor has the tokens of drafts that were planned ahead. The
// result's tokens replace them, so they are not checked against the drafts.
std::vector<std::vector<TokenId>> DraftsInFlight::DraftedAhead(
    const SelectionResult& result, int num_sequences) {
  std::vector<std::vector<TokenId>> drafts(num_sequences);
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

DraftsInFlight::Counts DraftsInFlight::Take(const SelectionResult& result) {
  Counts counts;
  for (const std::vector<TokenId>& draft : std::exchange(drafted_, {})) {
    counts.drafted.push_back(static_cast<int>(draft.size()));
  }
  counts.planned = counts.drafted;
  const int num_taken =
      std::exchange(num_running_, std::exchange(num_ahead_, 0));
  if (num_taken == 0) return counts;
  counts.were_ahead = true;
  counts.planned.assign(result.num_tokens.size(), num_taken);
  counts.drafted = result.num_drafted;
  counts.drafted.resize(counts.planned.size());
  return counts;
}

}  // namespace espalier

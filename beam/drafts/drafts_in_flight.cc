#include "beam/drafts/drafts_in_flight.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/status.h"

namespace espalier {

absl::Status DraftsInFlight::CheckNumDrafted(
    const SelectionResult& result) const {
  const std::vector<int>& counts = result.num_drafted;
  if (counts.empty()) return absl::OkStatus();
  if (counts.size() != limits_.size()) {
    return Internal("num_drafted must be empty, or of ", limits_.size(),
                    " samples, got ", counts.size(), " numbers");
  }
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] >= 0 && counts[rank] <= limits_[rank]) continue;
    return Internal("num_drafted[", rank, "] must be in [0, ", limits_[rank],
                    "], got ", counts[rank]);
  }
  return absl::OkStatus();
}

// Only the executor has the tokens of drafts that it made in the step. The
// result's tokens replace them, so they are not checked against the drafts.
std::vector<std::vector<TokenId>> DraftsInFlight::DraftedInStep(
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

DraftsInFlight::Counts DraftsInFlight::Take(const SelectionResult& result,
                                            int num_live) {
  Counts counts;
  for (const std::vector<TokenId>& draft : std::exchange(drafted_, {})) {
    counts.drafted.push_back(static_cast<int>(draft.size()));
  }
  counts.planned = counts.drafted;
  const int num_ahead = std::exchange(num_ahead_, 0);
  std::vector<int> limits = std::exchange(limits_, {});
  if (num_ahead > 0) limits_.assign(num_live, num_ahead);
  if (limits.empty()) return counts;
  counts.were_made_in_step = true;
  counts.planned = std::move(limits);
  counts.drafted = result.num_drafted;
  counts.drafted.resize(counts.planned.size());
  return counts;
}

}  // namespace espalier

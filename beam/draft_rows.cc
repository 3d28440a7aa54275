#include "beam/draft_rows.h"

#include <algorithm>
#include <utility>

namespace espalier {
namespace {

bool BeginsWith(std::span<const TokenId> tokens,
                std::span<const TokenId> beginning) {
  return beginning.size() <= tokens.size() &&
         std::ranges::equal(tokens.first(beginning.size()), beginning);
}

// Each path once, and none that another has as its beginning. Longer ones come
// first, and equals as they were.
std::vector<BeamPath> Maximal(std::vector<BeamPath> paths) {
  std::vector<BeamPath> kept;
  std::ranges::stable_sort(paths, [](const BeamPath& a, const BeamPath& b) {
    return a.path.tokens.size() > b.path.tokens.size();
  });
  for (BeamPath& path : paths) {
    const auto has = [&](const BeamPath& longer) {
      return longer.rank == path.rank &&
             BeginsWith(longer.path.tokens, path.path.tokens);
    };
    if (path.path.tokens.empty() || std::ranges::any_of(kept, has)) continue;
    kept.push_back(std::move(path));
  }
  return kept;
}

std::vector<BeamPath> CutTo(size_t length, std::vector<BeamPath> paths) {
  for (BeamPath& path : paths) {
    if (path.path.tokens.size() > length) path.path.tokens.resize(length);
  }
  return Maximal(std::move(paths));
}

DraftRows RowsOf(std::span<const BeamPath> paths, int num_beams) {
  DraftRows rows;
  for (int rank = 0; rank < num_beams; ++rank) {
    const size_t first = rows.ranks.size();
    for (const BeamPath& path : paths) {
      if (path.rank != rank) continue;
      rows.ranks.push_back(rank);
      rows.drafts.push_back(path.path.tokens);
    }
    if (rows.ranks.size() > first) continue;
    rows.ranks.push_back(rank);
    rows.drafts.emplace_back();
  }
  return rows;
}

}  // namespace

std::vector<int> DraftRows::num_tokens() const {
  std::vector<int> counts;
  for (const std::vector<TokenId>& draft : drafts) {
    counts.push_back(static_cast<int>(draft.size()) + 1);
  }
  return counts;
}

int DraftRows::num_drafted(int num_beams) const {
  int count = -num_beams;
  for (const int num_fed : num_tokens()) count += num_fed;
  return count;
}

std::vector<BeamPath> CutAtEnds(std::vector<BeamPath> paths,
                                std::span<const TokenId> ending) {
  for (auto& [rank, path] : paths) {
    const auto end = std::ranges::find_if(path.tokens, [&](TokenId token) {
      return std::ranges::binary_search(ending, token);
    });
    path.tokens.erase(end, path.tokens.end());
  }
  return paths;
}

DraftRows ChooseDraftRows(std::vector<BeamPath> paths, int num_beams,
                          const std::function<bool(const DraftRows&)>& fits) {
  std::ranges::stable_sort(paths, [](const BeamPath& a, const BeamPath& b) {
    return a.path.cum_log_prob > b.path.cum_log_prob;
  });
  paths = Maximal(std::move(paths));
  size_t length = paths.empty() ? 0 : paths.front().path.tokens.size();
  const auto pruned = std::ranges::find_if(paths, [&](const BeamPath& path) {
    return path.path.tokens.size() < length;
  });
  const std::vector<BeamPath> whole(paths.begin(), pruned);
  for (; length > 0; --length) {
    paths = CutTo(length, std::move(paths));
    const auto num_whole = std::ssize(CutTo(length, whole));
    for (auto count = std::ssize(paths); count >= num_whole; --count) {
      DraftRows rows = RowsOf(std::span(paths).first(count), num_beams);
      if (fits(rows)) return rows;
    }
  }
  return {};
}

}  // namespace espalier

#include "beam/drafts/path_rows.h"

#include <algorithm>
#include <cstdint>
#include <ranges>
#include <utility>

#include "exec_request/plan_drafts.h"

namespace espalier {
namespace {

bool BeginsWith(std::span<const TokenId> tokens,
                std::span<const TokenId> beginning) {
  return beginning.size() <= tokens.size() &&
         std::ranges::equal(tokens.first(beginning.size()), beginning);
}

// Returns each path once, without paths that are a prefix of another. Longer
// paths come first, and paths of one length keep their order.
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

int64_t NumOfLength(std::span<const BeamPath> paths, size_t length) {
  return std::ranges::count_if(paths, [&](const BeamPath& path) {
    return path.path.tokens.size() == length;
  });
}

// Returns the first `count` of `paths` unchanged, the others cut to `length`.
std::vector<BeamPath> WithLastStep(std::vector<BeamPath> paths, size_t length,
                                   size_t count) {
  for (BeamPath& path : std::span(paths).subspan(count)) {
    if (path.path.tokens.size() > length) path.path.tokens.resize(length);
  }
  return Maximal(std::move(paths));
}

// Returns the greatest number in [0, most] for which `fits` is true. It is true
// for 0, and for all numbers below one for which it is true.
template <typename Fits>
int Most(int64_t most, const Fits& fits) {
  const auto numbers = std::views::iota(1, static_cast<int>(most) + 1);
  return static_cast<int>(std::ranges::partition_point(numbers, fits) -
                          numbers.begin());
}

PathRows RowsOf(std::span<const BeamPath> paths, int num_beams) {
  PathRows rows;
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

std::vector<BeamPath> CutAtEnds(std::vector<BeamPath> paths,
                                std::span<const TokenId> ending) {
  for (auto& [rank, path] : paths) {
    path.tokens.resize(LengthToEnd(path.tokens, ending, /*keeps_end=*/false));
  }
  return paths;
}

PathRows ChoosePathRows(std::vector<BeamPath> paths, int num_beams,
                        const std::function<bool(const PathRows&)>& fits) {
  std::ranges::stable_sort(paths, [](const BeamPath& a, const BeamPath& b) {
    return a.path.cum_log_prob > b.path.cum_log_prob;
  });
  paths = Maximal(std::move(paths));
  if (paths.empty()) return {};
  const int max_length = static_cast<int>(paths.front().path.tokens.size());
  const auto fits_of = [&](std::span<const BeamPath> some) {
    return fits(RowsOf(some, num_beams));
  };
  const int num_whole =
      Most(max_length, [&](int steps) { return fits_of(CutTo(steps, paths)); });
  if (num_whole == max_length) return RowsOf(paths, num_beams);
  const std::vector<BeamPath> longer = CutTo(num_whole + 1, paths);
  const auto with_last = [&](int count) {
    return WithLastStep(longer, num_whole, count);
  };
  const int num_last = Most(NumOfLength(longer, num_whole + 1), [&](int count) {
    return fits_of(with_last(count));
  });
  // Fewer paths seldom contain all next beams: only if the search has fewer
  // surviving candidates than beams.
  const bool has_last = num_last >= num_beams;
  if (num_whole == 0 && !has_last) return {};
  return RowsOf(with_last(has_last ? num_last : 0), num_beams);
}

}  // namespace espalier

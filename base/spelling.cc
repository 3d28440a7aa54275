#include "base/spelling.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/status.h"

namespace espalier {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string NormalizeName(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  std::string folded(name);
  absl::AsciiStrToLower(&folded);
  std::replace(folded.begin(), folded.end(), '_', '-');
  return folded;
}

std::string ClosestName(std::string_view word,
                        std::span<const std::string_view> names) {
  constexpr size_t kShortestPart = 3;  // letters
  constexpr size_t kLongest = 64;      // no name of ours, and a long wait
  if (word.size() > kLongest) return "";
  const std::string meant = NormalizeName(word);
  std::string nearest;
  size_t fewest = 2 + meant.size() / 4;  // one more than the allowed distance
  size_t fewest_letters = 0;             // edit distance of `nearest`
  for (const std::string_view name : names) {
    const std::string folded = NormalizeName(name);
    if (folded.size() == 1 && folded != meant) continue;
    const bool is_part = meant.size() >= kShortestPart &&
                         folded.find(meant) != std::string::npos;
    const size_t letters = EditDistance(meant, folded);
    const size_t distance = is_part ? std::min<size_t>(1, letters) : letters;
    // A name at edit distance 1 is closer than one that contains the word.
    const bool beats_part =
        distance == fewest && letters == distance && letters < fewest_letters;
    if (distance < fewest || beats_part) {
      fewest = distance;
      fewest_letters = letters;
      nearest = name;
    }
  }
  return nearest;
}

std::string DidYouMean(std::string_view word,
                       std::span<const std::string_view> names) {
  const std::string nearest = ClosestName(word, names);
  return nearest.empty() ? "" : Concat("; did you mean ", nearest, "?");
}

}  // namespace espalier

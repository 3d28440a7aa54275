// Plain search for the first stop string of a text.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace espalier::testing {

// A text up to its stop string.
struct Cut {
  std::string text;
  std::optional<int> stop_idx;
  size_t consumed_bytes = 0;

  bool operator==(const Cut&) const = default;
};

inline void PrintTo(const Cut& cut, std::ostream* out) {
  *out << ::testing::PrintToString(cut.text) << " stop "
       << cut.stop_idx.value_or(-1) << " after " << cut.consumed_bytes;
}

// The oracle of stop strings: all of them are searched for after every byte of
// the whole text; none ends in its first `num_unmatched` bytes.
inline Cut NaiveCut(const std::vector<std::string>& stops,
                    const std::string& text, bool include_stop,
                    size_t num_unmatched = 0) {
  for (size_t end = num_unmatched + 1; end <= text.size(); ++end) {
    const std::string so_far = text.substr(0, end);
    std::optional<int> longest;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (so_far.ends_with(stops[i]) &&
          (!longest || stops[i].size() > stops[*longest].size())) {
        longest = static_cast<int>(i);
      }
    }
    if (!longest) continue;
    const size_t num_cut = include_stop ? 0 : stops[*longest].size();
    return {so_far.substr(0, end - num_cut), longest, end};
  }
  return {text, std::nullopt, text.size()};
}

}  // namespace espalier::testing

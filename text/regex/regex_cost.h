// Step counting for the matching of a pattern. PCRE2's own limit is
// insufficient: its compiled code restarts the count at each start of a match,
// and counts a repeated character such as a* as one step, whatever its length.
//
// A step is roughly the work of comparing a character. Without unbounded
// repetitions, the pattern bounds the cost of one match attempt, and it is not
// counted if it is small. An unbounded repetition may extend to the end of the
// text. If the next items may fail, so that its work is wasted, a callout after
// it, "(?C1)", counts the bytes that it matched. In the patterns of models that
// applies to \s* in \s*[\r\n]+, but not to a word's \p{L}+, which ends the
// match: it costs as much as it consumes.
//
// Repetitions of groups, and patterns with many ways to begin, have a callout
// before every item.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

struct RegexCost {
  struct Repetition {
    int64_t steps_per_byte;
    // Steps of the items up to the next callout.
    int64_t steps_after;
  };

  // True if there is a callout before every item.
  bool counts_all = false;
  // Callout number n is behind repetitions[n - 1]; empty if counts_all.
  std::vector<Repetition> repetitions;
  // If counts_all: steps of an item, and of each byte that it matches.
  int64_t steps_per_item = 0;
  int64_t steps_per_byte = 0;
};

struct CountedPattern {
  std::string pattern;  // with the callouts, unless the cost counts all
  RegexCost cost;
};

// REQUIRES: `pattern` is what OnigurumaToPcre2 makes, or of that syntax; if it
// is wrong in itself, so is what is returned.
CountedPattern CountPattern(std::string_view pattern);

}  // namespace espalier

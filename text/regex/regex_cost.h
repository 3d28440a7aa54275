// How the work of a pattern is counted while it is matched. PCRE2's own limit
// does not do it: its compiled code counts for each beginning of a match anew,
// and a repeated character such as a* is one step however far it goes.
//
// A step is about the work of comparing a character. What one beginning of a
// match costs without repetitions that have no end is bounded by the pattern,
// and not counted if that is little. Such a repetition may go to the end of the
// text; where what follows may fail, so that it went there for nothing, PCRE2
// calls back after it (a callout, "(?C1)"), and what it went is counted. In
// the patterns of models that is \s* of \s*[\r\n]+, but not a word's \p{L}+, at
// which the match ends: it costs what it takes from the text.
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
    // Of what may follow it before the next callout.
    int64_t steps_after;
  };

  // Whether there is a callout before every item.
  bool counts_all = false;
  // Callout number n is behind repetitions[n - 1]; empty if counts_all.
  std::vector<Repetition> repetitions;
  // Of an item, and of an item for each byte that it goes, if counts_all.
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

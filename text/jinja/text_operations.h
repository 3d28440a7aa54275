// The methods of Python's str that templates call, on texts that mark the bytes
// of inputs (text.h). Positions are bytes of UTF-8.
//
// Time is linear in text and result. Where a result can be larger than what it
// is made of, its size is charged to the budget first, which throws when it is
// spent (budget.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/budget.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace espalier::jinja {

// Returns the first occurrence of `part` in `text`, or npos, in time linear in
// both, unlike std::string::find. LastFinder finds the last one.
size_t FindFirst(std::string_view text, std::string_view part,
                 size_t begin = 0);
class LastFinder {
 public:
  // `part` outlives this.
  explicit LastFinder(std::string_view part);
  size_t Find(std::string_view text) const;

 private:
  std::string_view part_;
  // For each size of an end of `part`: how many bytes at its beginning are also
  // its end, itself aside (Knuth, Morris and Pratt, from the right).
  std::vector<uint32_t> borders_;
};

// Drops these characters, or white space, from the ends.
Text Strip(const Text& text, const std::optional<std::string>& characters,
           bool at_begin, bool at_end);

// The first `count` occurrences; all if it is negative.
Text Replace(const Text& text, std::string_view old, const Text& replacement,
             int64_t count, Budget& budget);

// By a separator, or by runs of white space; at most `max_splits` times if it
// is not negative, from the end on if `from_end`.
// Errors (thrown): an empty separator.
std::vector<Text> Split(const Text& text,
                        const std::optional<std::string>& separator,
                        int64_t max_splits, bool from_end, Budget& budget);

// Escapes a string for HTML unless it is markup already.
Text EscapeHtml(const Value& value, Budget& budget);

std::vector<Text> SplitLines(const Text& text, bool keeps_ends, Budget& budget);
// A line break that "\n" after it would not be a part of.
bool EndsInLineBreak(std::string_view text);

std::string Capitalize(std::string_view text);
std::string Title(std::string_view text);

}  // namespace espalier::jinja

// CodePointSet: a set of Unicode code points without surrogates, such as a
// character class of a regular expression, and its texts in UTF-8 as a part of
// an automaton.
//
// Thread safety: a value.
#pragma once

#include <compare>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "constrain/byte_nfa.h"

namespace espalier {

class CodePointSet {
 public:
  static constexpr char32_t kLast = 0x10FFFF;
  struct Range {
    char32_t first = 0;
    char32_t last = 0;
    friend auto operator<=>(const Range&, const Range&) = default;
  };

  CodePointSet() = default;
  CodePointSet(std::initializer_list<Range> ranges)
      : CodePointSet(Of(ranges)) {}
  static CodePointSet All() { return {{0, kLast}}; }
  // Returns the code points of a general category, "Lu", or of a group of them,
  // "L" or "LC", by Unicode's short names. Null if there is none of this name.
  static const CodePointSet* OfCategory(std::string_view name);

  // The union of ranges in any order. Takes O(n log n) steps.
  // REQUIRES: each has first <= last <= kLast.
  static CodePointSet Of(std::vector<Range> ranges);
  CodePointSet Complement() const;

  bool empty() const { return ranges_.empty(); }
  // Ascending, disjoint, not adjacent.
  const std::vector<Range>& ranges() const { return ranges_; }

  // Adds the UTF-8 form of each code point as a path from `from` to `to`.
  // Errors: kInvalidArgument if the budget of `nfa` is spent.
  absl::Status AddTo(ByteNfa* nfa, ByteNfa::State from,
                     ByteNfa::State to) const;

 private:
  std::vector<Range> ranges_;
};

}  // namespace espalier

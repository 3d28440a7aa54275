// CodePointSet: a set of Unicode code points without surrogates, such as a
// character class of a regular expression, and its texts in UTF-8 as a part of
// an automaton.
//
// Thread safety: a value.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
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
    friend bool operator==(const Range&, const Range&) = default;
  };

  CodePointSet() = default;
  CodePointSet(std::initializer_list<Range> ranges) {
    for (const Range& range : ranges) Add(range);
  }
  static CodePointSet All() { return {{0, kLast}}; }
  // Code points of a general category, "Lu", or of a group of them, "L", by
  // Unicode's short names. Nullopt if there is none of this name.
  static std::optional<CodePointSet> OfCategory(std::string_view name);

  // REQUIRES: first <= last <= kLast.
  void Add(Range range);
  void Add(const CodePointSet& other);
  CodePointSet Complement() const;

  bool empty() const { return ranges_.empty(); }
  bool Contains(char32_t code_point) const;
  // Ascending, disjoint, not adjacent.
  const std::vector<Range>& ranges() const { return ranges_; }

  // Adds the UTF-8 form of each code point as a way from `from` to `to`.
  // Errors: kInvalidArgument if the budget of `nfa` is spent.
  absl::Status AddTo(ByteNfa* nfa, ByteNfa::State from,
                     ByteNfa::State to) const;

 private:
  std::vector<Range> ranges_;
};

}  // namespace espalier

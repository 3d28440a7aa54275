#include "constrain/code_point_set.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>

#include "base/status.h"

namespace espalier {
namespace {

using Range = CodePointSet::Range;

constexpr Range kSurrogates = {0xD800, 0xDFFF};

// Bytes of one code point in UTF-8.
struct Utf8 {
  std::array<uint8_t, 4> bytes = {};
  int size = 0;
};

Utf8 Encode(char32_t c) {
  const auto rest = [](char32_t bits) {
    return static_cast<uint8_t>(0x80 | (bits & 0x3F));
  };
  if (c < 0x80) return {{static_cast<uint8_t>(c)}, 1};
  if (c < 0x800) return {{static_cast<uint8_t>(0xC0 | c >> 6), rest(c)}, 2};
  if (c < 0x10000) {
    return {{static_cast<uint8_t>(0xE0 | c >> 12), rest(c >> 6), rest(c)}, 3};
  }
  return {{static_cast<uint8_t>(0xF0 | c >> 18), rest(c >> 12), rest(c >> 6),
           rest(c)},
          4};
}

// Adds the byte strings in [first, last], of one length, in the order of bytes.
// All but the first byte are continuation bytes.
absl::Status AddInterval(std::span<const uint8_t> first,
                         std::span<const uint8_t> last, ByteNfa* nfa,
                         ByteNfa::State from, ByteNfa::State to) {
  if (first.size() == 1) {
    nfa->AddBytes(from, first[0], last[0], to);
    return absl::OkStatus();
  }
  static constexpr std::array<uint8_t, 3> kLowest = {0x80, 0x80, 0x80};
  static constexpr std::array<uint8_t, 3> kHighest = {0xBF, 0xBF, 0xBF};
  const size_t num_rest = first.size() - 1;
  const auto lowest = std::span(kLowest).first(num_rest);
  const auto highest = std::span(kHighest).first(num_rest);
  const auto add = [&](uint8_t low, uint8_t high,
                       std::span<const uint8_t> rest_first,
                       std::span<const uint8_t> rest_last) -> absl::Status {
    ASSIGN_OR_RETURN(const ByteNfa::State middle, nfa->AddState());
    nfa->AddBytes(from, low, high, middle);
    return AddInterval(rest_first, rest_last, nfa, middle, to);
  };
  const auto first_rest = first.subspan(1);
  const auto last_rest = last.subspan(1);
  if (first[0] == last[0]) {
    return add(first[0], last[0], first_rest, last_rest);
  }
  int low = first[0];
  int high = last[0];
  if (!std::ranges::equal(first_rest, lowest)) {
    RETURN_IF_ERROR(add(first[0], first[0], first_rest, highest));
    ++low;
  }
  if (!std::ranges::equal(last_rest, highest)) {
    RETURN_IF_ERROR(add(last[0], last[0], lowest, last_rest));
    --high;
  }
  if (low > high) return absl::OkStatus();
  return add(static_cast<uint8_t>(low), static_cast<uint8_t>(high), lowest,
             highest);
}

// Code points of each general category, by its short name.
using Categories = std::map<std::string, CodePointSet>;

Categories MakeCategories() {
  Categories result;
  char32_t first = 0;
  std::string name = utf8proc_category_string(0);
  for (char32_t c = 1; c <= CodePointSet::kLast + 1; ++c) {
    const char* const next =
        c > CodePointSet::kLast
            ? ""
            : utf8proc_category_string(static_cast<utf8proc_int32_t>(c));
    if (name == next) continue;
    result[name].Add({first, c - 1});
    first = c;
    name = next;
  }
  return result;
}

}  // namespace

void CodePointSet::Add(Range range) {
  if (range.first < kSurrogates.first && range.last > kSurrogates.last) {
    Add({range.first, kSurrogates.first - 1});
    return Add({kSurrogates.last + 1, range.last});
  }
  if (range.first >= kSurrogates.first && range.first <= kSurrogates.last) {
    range.first = kSurrogates.last + 1;
  }
  if (range.last >= kSurrogates.first && range.last <= kSurrogates.last) {
    range.last = kSurrogates.first - 1;
  }
  if (range.first > range.last) return;
  // Ranges that overlap with it or touch it are merged.
  const auto begin = std::lower_bound(
      ranges_.begin(), ranges_.end(), range.first,
      [](const Range& r, char32_t first) { return r.last + 1 < first; });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= range.last + 1; ++end) {
    range.first = std::min(range.first, end->first);
    range.last = std::max(range.last, end->last);
  }
  ranges_.insert(ranges_.erase(begin, end), range);
}

void CodePointSet::Add(const CodePointSet& other) {
  for (const Range& range : other.ranges_) Add(range);
}

CodePointSet CodePointSet::Complement() const {
  CodePointSet result;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) result.Add({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) result.Add({next, kLast});
  return result;
}

bool CodePointSet::Contains(char32_t code_point) const {
  const auto range =
      std::lower_bound(ranges_.begin(), ranges_.end(), code_point,
                       [](const Range& r, char32_t c) { return r.last < c; });
  return range != ranges_.end() && range->first <= code_point;
}

std::optional<CodePointSet> CodePointSet::OfCategory(std::string_view name) {
  // Made once, because it takes a look at each code point.
  static const Categories& categories = *new Categories(MakeCategories());
  if (name.empty()) return std::nullopt;
  CodePointSet result;
  for (const auto& [category, set] : categories) {
    if (std::string_view(category).starts_with(name)) result.Add(set);
  }
  if (result.empty()) return std::nullopt;
  return result;
}

absl::Status CodePointSet::AddTo(ByteNfa* nfa, ByteNfa::State from,
                                 ByteNfa::State to) const {
  // Last code points with one, two, three and four bytes of UTF-8.
  static constexpr char32_t kLastOfLength[] = {0x7F, 0x7FF, 0xFFFF, kLast};
  for (const Range& range : ranges_) {
    char32_t first = range.first;
    for (const char32_t last_of_length : kLastOfLength) {
      if (first > last_of_length || first > range.last) continue;
      const char32_t last = std::min(range.last, last_of_length);
      const Utf8 low = Encode(first);
      const Utf8 high = Encode(last);
      RETURN_IF_ERROR(AddInterval(std::span(low.bytes).first(low.size),
                                  std::span(high.bytes).first(high.size), nfa,
                                  from, to));
      first = last + 1;
    }
  }
  return absl::OkStatus();
}

}  // namespace espalier

#include "constrain/code_point_set.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"

namespace espalier {
namespace {

using Range = CodePointSet::Range;

// Around the surrogates.
constexpr char32_t kLastBefore = 0xD7FF;
constexpr char32_t kFirstAfter = 0xE000;

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
    return nfa->AddBytes(from, first[0], last[0], to);
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
    RETURN_IF_ERROR(nfa->AddBytes(from, low, high, middle));
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

// Code points of each general category and group, by its short name.
using Categories = std::map<std::string, CodePointSet, std::less<>>;

Categories MakeCategories() {
  std::map<std::string, std::vector<Range>> ranges;
  const auto add = [&](const std::string& category, Range range) {
    ranges[category].push_back(range);
    ranges[category.substr(0, 1)].push_back(range);
    if (category == "Lu" || category == "Ll" || category == "Lt") {
      ranges["LC"].push_back(range);
    }
  };
  char32_t first = 0;
  std::string name = utf8proc_category_string(0);
  for (char32_t c = 1; c <= CodePointSet::kLast + 1; ++c) {
    const char* const next =
        c > CodePointSet::kLast
            ? ""
            : utf8proc_category_string(static_cast<utf8proc_int32_t>(c));
    if (name == next) continue;
    add(name, {first, c - 1});
    first = c;
    name = next;
  }
  Categories categories;
  for (auto& [category, of_category] : ranges) {
    categories[category] = CodePointSet::Of(std::move(of_category));
  }
  return categories;
}

}  // namespace

CodePointSet CodePointSet::Of(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  std::vector<Range> merged;
  const auto add = [&](char32_t first, char32_t last) {
    if (first > last) return;
    if (!merged.empty() && first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, last);
    } else {
      merged.push_back({first, last});
    }
  };
  for (const Range& range : ranges) {
    add(range.first, std::min(range.last, kLastBefore));
  }
  for (const Range& range : ranges) {
    add(std::max(range.first, kFirstAfter), range.last);
  }
  CodePointSet result;
  result.ranges_ = std::move(merged);
  return result;
}

CodePointSet CodePointSet::Complement() const {
  std::vector<Range> result;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) result.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) result.push_back({next, kLast});
  return Of(std::move(result));
}

const CodePointSet* CodePointSet::OfCategory(std::string_view name) {
  // Made once, because it takes a look at each code point.
  static const Categories& categories = *new Categories(MakeCategories());
  const auto found = categories.find(name);
  return found == categories.end() ? nullptr : &found->second;
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

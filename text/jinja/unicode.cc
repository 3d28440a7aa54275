#include "text/jinja/unicode.h"

#include <algorithm>
#include <optional>

#include "text/jinja/unicode_tables.h"

namespace espalier::jinja {
namespace {

// The last range that begins at or before `code_point`, or null.
template <typename Range>
const Range* FindRange(std::span<const Range> ranges, uint32_t code_point) {
  const auto after =
      std::ranges::upper_bound(ranges, code_point, {}, &Range::first);
  return after == ranges.begin() ? nullptr : &*std::prev(after);
}

uint32_t MapCase(std::span<const CaseRange> ranges, uint32_t code_point) {
  const CaseRange* const range = FindRange(ranges, code_point);
  if (range == nullptr || code_point > range->last ||
      (code_point - range->first) % range->stride != 0) {
    return code_point;
  }
  return code_point + range->delta;
}

const char* FindExpansion(uint32_t code_point) {
  const auto expansions = UpperExpansions();
  const auto found = std::ranges::lower_bound(expansions, code_point, {},
                                              &CaseExpansion::code_point);
  return found == expansions.end() || found->code_point != code_point
             ? nullptr
             : found->text;
}

bool IsAscii(char byte) { return static_cast<unsigned char>(byte) < 0x80; }

}  // namespace

size_t CharacterSize(char byte) {
  const auto lead = static_cast<unsigned char>(byte);
  return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

uint32_t FirstCodePoint(std::string_view text) {
  const size_t size = std::min(CharacterSize(text[0]), text.size());
  const auto lead = static_cast<unsigned char>(text[0]);
  if (size == 1) return lead;
  uint32_t code_point = lead & (0x7F >> size);
  for (size_t i = 1; i < size; ++i) {
    code_point = code_point << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
  }
  return code_point;
}

void AppendCodePoint(uint32_t code_point, std::string* out) {
  const auto add = [&](uint32_t byte) { *out += static_cast<char>(byte); };
  if (code_point < 0x80) {
    add(code_point);
    return;
  }
  if (code_point < 0x800) {
    add(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      add(0xE0 | code_point >> 12);
    } else {
      add(0xF0 | code_point >> 18);
      add(0x80 | (code_point >> 12 & 0x3F));
    }
    add(0x80 | (code_point >> 6 & 0x3F));
  }
  add(0x80 | (code_point & 0x3F));
}

int64_t CountCharacters(std::string_view text) {
  return std::ranges::count_if(text, [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  });
}

size_t ByteOfCharacter(std::string_view text, int64_t index) {
  size_t byte = 0;
  for (; index > 0 && byte < text.size(); --index) {
    byte += CharacterSize(text[byte]);
  }
  return std::min(byte, text.size());
}

bool IsSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 ||
         c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

size_t LeadingSpace(std::string_view text) {
  size_t size = 0;
  while (size < text.size() && IsSpace(FirstCodePoint(text.substr(size)))) {
    size += CharacterSize(text[size]);
  }
  return size;
}

size_t TrailingSpace(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 &&
           (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) {
      --begin;
    }
    if (!IsSpace(FirstCodePoint(text.substr(begin)))) break;
    end = begin;
  }
  return text.size() - end;
}

std::string ToUpper(std::string_view text) {
  std::string upper;
  upper.reserve(text.size());
  for (size_t i = 0; i < text.size(); i += CharacterSize(text[i])) {
    if (IsAscii(text[i])) {
      const bool is_lower = text[i] >= 'a' && text[i] <= 'z';
      upper += static_cast<char>(is_lower ? text[i] - 32 : text[i]);
      continue;
    }
    const uint32_t code_point = FirstCodePoint(text.substr(i));
    if (const char* const expansion = FindExpansion(code_point)) {
      upper += expansion;
    } else {
      AppendCodePoint(MapCase(UpperRanges(), code_point), &upper);
    }
  }
  return upper;
}

std::string ToLower(std::string_view text) {
  constexpr uint32_t kDottedCapitalI = 0x130;  // becomes two characters
  std::string lower;
  lower.reserve(text.size());
  for (size_t i = 0; i < text.size(); i += CharacterSize(text[i])) {
    if (IsAscii(text[i])) {
      const bool is_upper = text[i] >= 'A' && text[i] <= 'Z';
      lower += static_cast<char>(is_upper ? text[i] + 32 : text[i]);
      continue;
    }
    const uint32_t code_point = FirstCodePoint(text.substr(i));
    if (code_point == kDottedCapitalI) {
      lower += "i\u0307";
    } else {
      AppendCodePoint(MapCase(LowerRanges(), code_point), &lower);
    }
  }
  return lower;
}

std::string ToTitleCharacter(std::string_view character) {
  const uint32_t code_point = FirstCodePoint(character);
  const bool is_georgian = code_point >= 0x10D0 && code_point <= 0x10FF;
  if (is_georgian) return std::string(character);
  const std::string upper = ToUpper(character);
  if (FindExpansion(code_point) == nullptr) return upper;
  const size_t first = CharacterSize(upper[0]);
  return upper.substr(0, first) + ToLower(upper.substr(first));
}

bool IsUpperCharacter(std::string_view character) {
  return ToLower(character) != character;
}

bool IsLowerCharacter(std::string_view character) {
  return ToUpper(character) != character && !IsUpperCharacter(character);
}

bool IsCased(std::string_view character) {
  return IsUpperCharacter(character) || IsLowerCharacter(character);
}

bool IsPrintable(uint32_t code_point) {
  const CodePointRange* const range =
      FindRange(UnprintableRanges(), code_point);
  return range == nullptr || code_point > range->last;
}

}  // namespace espalier::jinja

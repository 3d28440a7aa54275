#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>

namespace espalier::jinja {
namespace {

// "SS" of "ß": the upper case of a character that becomes several; nothing if
// it becomes one. Full case folding has the same characters in lower case.
std::string UpperExpansion(uint32_t code_point) {
  constexpr size_t kMostCharacters = 3;
  const auto character = static_cast<utf8proc_int32_t>(code_point);
  if (utf8proc_category(character) == UTF8PROC_CATEGORY_LU) return "";
  utf8proc_int32_t folded[kMostCharacters];
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      character, folded, kMostCharacters, UTF8PROC_CASEFOLD, &boundary);
  std::string upper;
  for (utf8proc_ssize_t i = 0; count > 1 && i < count; ++i) {
    AppendCodePoint(static_cast<uint32_t>(utf8proc_toupper(folded[i])), &upper);
  }
  return upper;
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
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t size =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out->append(bytes, bytes + size);
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
    const std::string expansion = UpperExpansion(code_point);
    upper += expansion;
    if (!expansion.empty()) continue;
    AppendCodePoint(utf8proc_toupper(static_cast<utf8proc_int32_t>(code_point)),
                    &upper);
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
      AppendCodePoint(
          utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point)), &lower);
    }
  }
  return lower;
}

std::string ToTitleCharacter(std::string_view character) {
  const uint32_t code_point = FirstCodePoint(character);
  const bool is_georgian = code_point >= 0x10D0 && code_point <= 0x10FF;
  if (is_georgian) return std::string(character);
  const std::string upper = ToUpper(character);
  if (UpperExpansion(code_point).empty()) return upper;
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
  if (code_point == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

}  // namespace espalier::jinja

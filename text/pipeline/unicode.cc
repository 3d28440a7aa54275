#include "text/pipeline/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "text/pipeline/canonical_order.h"

namespace espalier {
namespace {

constexpr char32_t kEndOfAscii = 0x80;

bool IsAscii(char byte) { return static_cast<uint8_t>(byte) < kEndOfAscii; }

utf8proc_category_t CategoryOf(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

utf8proc_option_t OptionsOf(NormalizationForm form) {
  const bool composes =
      form == NormalizationForm::kNfc || form == NormalizationForm::kNfkc;
  const bool is_compatible =
      form == NormalizationForm::kNfkc || form == NormalizationForm::kNfkd;
  return static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
      (is_compatible ? UTF8PROC_COMPAT : 0));
}

// As utf8proc_map, but for the time that putting marks in order takes there:
// the square of how many follow each other.
class FormWriter {
 public:
  explicit FormWriter(NormalizationForm form) : options_(OptionsOf(form)) {}

  void Append(std::string_view text, std::string* out) {
    characters_.clear();
    while (!text.empty()) Decompose(TakeCharacter(&text));
    PutInCanonicalOrder(
        [](utf8proc_int32_t character) {
          return utf8proc_get_property(character)->combining_class;
        },
        std::span(characters_));
    const utf8proc_ssize_t size = utf8proc_normalize_utf32(
        characters_.data(), std::ssize(characters_), options_);
    CHECK(size >= 0) << utf8proc_errmsg(size);
    for (utf8proc_ssize_t i = 0; i < size; ++i) {
      AppendCharacter(static_cast<char32_t>(characters_[i]), out);
    }
  }

 private:
  void Decompose(char32_t character) {
    // The longest compatibility form has 18.
    std::array<utf8proc_int32_t, 32> parts;
    int boundclass = 0;
    const utf8proc_ssize_t num_parts = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(character), parts.data(),
        std::ssize(parts), options_, &boundclass);
    CHECK(num_parts >= 0 && num_parts <= std::ssize(parts))
        << "U+" << static_cast<uint32_t>(character);
    characters_.insert(characters_.end(), parts.begin(),
                       parts.begin() + num_parts);
  }

  const utf8proc_option_t options_;
  std::vector<utf8proc_int32_t> characters_;
};

}  // namespace

char32_t TakeCharacter(std::string_view* text) {
  CHECK(!text->empty());
  const size_t size = CharacterSize(text->front());
  CHECK(size <= text->size())
      << "a character of " << size << " bytes has " << text->size();
  // Payload bits of the lead byte, by length of the character.
  constexpr uint8_t kLeadBits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  char32_t character = static_cast<uint8_t>(text->front()) & kLeadBits[size];
  for (size_t i = 1; i < size; ++i) {
    character = character << 6 | (static_cast<uint8_t>((*text)[i]) & 0x3F);
  }
  text->remove_prefix(size);
  return character;
}

void AppendCharacter(char32_t character, std::string* text) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t size =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes);
  text->append(reinterpret_cast<const char*>(bytes), size);
}

bool IsWhitespace(char32_t character) {
  if (character < kEndOfAscii) {
    return character == ' ' || (character >= '\t' && character <= '\r');
  }
  if (character == 0x85) return true;
  const utf8proc_category_t category = CategoryOf(character);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

bool IsNumeric(char32_t character) {
  if (character < kEndOfAscii) return character >= '0' && character <= '9';
  const utf8proc_category_t category = CategoryOf(character);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsPunctuation(char32_t character) {
  if (character < kEndOfAscii) {
    return (character >= '!' && character <= '/') ||
           (character >= ':' && character <= '@') ||
           (character >= '[' && character <= '`') ||
           (character >= '{' && character <= '~');
  }
  const utf8proc_category_t category = CategoryOf(character);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool IsMark(char32_t character) {
  const utf8proc_category_t category = CategoryOf(character);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool IsLetter(char32_t character) {
  const utf8proc_category_t category = CategoryOf(character);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsUppercaseLetter(char32_t character) {
  const utf8proc_category_t category = CategoryOf(character);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LT;
}

bool IsLowercaseLetter(char32_t character) {
  return CategoryOf(character) == UTF8PROC_CATEGORY_LL;
}

bool IsClosingPunctuation(char32_t character) {
  const utf8proc_category_t category = CategoryOf(character);
  return category == UTF8PROC_CATEGORY_PE || category == UTF8PROC_CATEGORY_PF;
}

bool IsNonspacingMark(char32_t character) {
  return CategoryOf(character) == UTF8PROC_CATEGORY_MN;
}

bool IsControl(char32_t character) {
  const utf8proc_category_t category = CategoryOf(character);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CO;
}

bool IsBertIdeograph(char32_t character) {
  constexpr std::pair<char32_t, char32_t> kBlocks[] = {
      {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
      {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
      {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return std::ranges::any_of(kBlocks, [&](const auto& block) {
    return character >= block.first && character <= block.second;
  });
}

std::string ToLowercase(std::string_view text) {
  constexpr char32_t kDottedI = 0x130;  // the only one that becomes two
  std::string lower;
  lower.reserve(text.size());
  while (!text.empty()) {
    const char32_t character = TakeCharacter(&text);
    if (character == kDottedI) {
      lower += "i\u0307";
    } else {
      AppendCharacter(static_cast<char32_t>(utf8proc_tolower(
                          static_cast<utf8proc_int32_t>(character))),
                      &lower);
    }
  }
  return lower;
}

std::string ToForm(std::string_view text, NormalizationForm form) {
  FormWriter writer(form);
  std::string out;
  out.reserve(text.size());
  // An ASCII character is the same in every form and does not combine with the
  // text before it. Only non-ASCII runs, and the ASCII character before each,
  // can change.
  while (!text.empty()) {
    size_t begin = 0;
    while (begin < text.size() && IsAscii(text[begin])) ++begin;
    if (begin == text.size()) break;
    size_t end = begin;
    while (end < text.size() && !IsAscii(text[end])) ++end;
    if (begin > 0) --begin;
    out += text.substr(0, begin);
    writer.Append(text.substr(begin, end - begin), &out);
    text.remove_prefix(end);
  }
  out += text;
  return out;
}

size_t GraphemeSize(std::string_view text) {
  utf8proc_int32_t state = 0;
  std::string_view rest = text;
  char32_t before = TakeCharacter(&rest);
  while (!rest.empty()) {
    const size_t size = text.size() - rest.size();
    const char32_t next = TakeCharacter(&rest);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before),
                                         static_cast<utf8proc_int32_t>(next),
                                         &state)) {
      return size;
    }
    before = next;
  }
  return text.size();
}

}  // namespace espalier

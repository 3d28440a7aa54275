// Unicode, as the parts of a tokenizer need it: characters of UTF-8, their
// kinds, and the normalisation forms. Over utf8proc (2.8: Unicode 15).
//
// REQUIRES everywhere: well-formed UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace espalier {

// The first character of `text`, which is not empty; moves past it.
char32_t TakeCharacter(std::string_view* text);
void AppendCharacter(char32_t character, std::string* text);
// Bytes of the character that begins with `lead`.
inline size_t CharacterSize(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The property White_Space.
bool IsWhitespace(char32_t character);
// General categories N, P (or punctuation of ASCII, such as $), and M.
bool IsNumeric(char32_t character);
bool IsPunctuation(char32_t character);
bool IsMark(char32_t character);
// General categories L, Lu with Lt, and Ll.
bool IsLetter(char32_t character);
bool IsUppercaseLetter(char32_t character);
bool IsLowercaseLetter(char32_t character);
// General categories Pe and Pf.
bool IsClosingPunctuation(char32_t character);
// General categories Mn, Cc with Cf and Co, and the blocks of Han that BERT
// takes for words.
bool IsNonspacingMark(char32_t character);
bool IsControl(char32_t character);
bool IsBertIdeograph(char32_t character);

// Letter by letter, without regard to their neighbours: Σ is always σ.
std::string ToLowercase(std::string_view text);

enum class NormalizationForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// `text` in the form.
// Source: Unicode Standard Annex #15.
std::string ToForm(std::string_view text, NormalizationForm form);

// Bytes of the first extended grapheme cluster of `text`, which is not empty.
// Source: Unicode Standard Annex #29.
size_t GraphemeSize(std::string_view text);

}  // namespace espalier

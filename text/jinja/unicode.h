// Character functions of templates, as in Python's str: code points, white
// space, case. Input and output are UTF-8. Case mappings are utf8proc's (2.8:
// Unicode 15), including characters that become several ("ß".upper() is "SS"),
// but not the ones that depend on neighbours (a final sigma).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace espalier::jinja {

// REQUIRES, for all functions: text is well-formed UTF-8; a `character` is
// exactly one; a code point is valid and no surrogate.

// Returns the bytes of the character that begins with `byte`.
size_t CharacterSize(char byte);
// Returns the first character. REQUIRES: `text` is not empty.
uint32_t FirstCodePoint(std::string_view text);
void AppendCodePoint(uint32_t code_point, std::string* out);
int64_t CountCharacters(std::string_view text);
// Returns the byte at which the character of this index begins, or text.size()
// if `text` has fewer characters.
size_t ByteOfCharacter(std::string_view text, int64_t index);

// Returns str.isspace() of one character.
bool IsSpace(uint32_t code_point);
// Return the bytes of white space that `text` begins or ends with.
size_t LeadingSpace(std::string_view text);
size_t TrailingSpace(std::string_view text);

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string ToTitleCharacter(std::string_view character);
// True if lowering it changes it.
bool IsUpperCharacter(std::string_view character);
bool IsLowerCharacter(std::string_view character);
bool IsCased(std::string_view character);
// True if repr() shows the character unescaped.
bool IsPrintable(uint32_t code_point);

}  // namespace espalier::jinja

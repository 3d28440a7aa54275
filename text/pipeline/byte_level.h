// The alphabet of byte-level vocabularies (GPT-2's): a visible character for
// each byte. Bytes that are visible in Latin-1 are themselves, the others
// U+0100 and following, in order: a space is "Ġ" (U+0120).
//
// Source: https://github.com/openai/gpt-2/blob/master/src/encoder.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace espalier {

char32_t CharacterOfByte(uint8_t byte);
std::optional<uint8_t> ByteOfCharacter(char32_t character);

// Each byte of `bytes` as its character, in UTF-8.
std::string ToByteAlphabet(std::string_view bytes);

// Returns the bytes that the characters of `text` stand for; nullopt if a
// character stands for none.
// REQUIRES: well-formed UTF-8.
std::optional<std::string> FromByteAlphabet(std::string_view text);

}  // namespace espalier

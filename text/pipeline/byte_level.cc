#include "text/pipeline/byte_level.h"

#include <array>

#include "text/pipeline/unicode.h"

namespace espalier {
namespace {

constexpr char32_t kFirstOther = 0x100;

constexpr bool IsVisible(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

constexpr std::array<char32_t, 256> MakeCharacters() {
  std::array<char32_t, 256> characters = {};
  char32_t other = kFirstOther;
  for (int byte = 0; byte < 256; ++byte) {
    characters[byte] = IsVisible(byte) ? static_cast<char32_t>(byte) : other++;
  }
  return characters;
}

constexpr std::array<char32_t, 256> kCharacters = MakeCharacters();

constexpr int kNumOthers = 68;

constexpr std::array<uint8_t, kNumOthers> MakeOthers() {
  std::array<uint8_t, kNumOthers> others = {};
  for (int byte = 0; byte < 256; ++byte) {
    if (!IsVisible(byte)) {
      others[kCharacters[byte] - kFirstOther] = static_cast<uint8_t>(byte);
    }
  }
  return others;
}

constexpr std::array<uint8_t, kNumOthers> kOthers = MakeOthers();

}  // namespace

char32_t CharacterOfByte(uint8_t byte) { return kCharacters[byte]; }

std::optional<uint8_t> ByteOfCharacter(char32_t character) {
  if (character < kFirstOther) {
    if (!IsVisible(static_cast<int>(character))) return std::nullopt;
    return static_cast<uint8_t>(character);
  }
  if (character >= kFirstOther + kNumOthers) return std::nullopt;
  return kOthers[character - kFirstOther];
}

std::string ToByteAlphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    AppendCharacter(CharacterOfByte(static_cast<uint8_t>(byte)), &text);
  }
  return text;
}

std::optional<std::string> FromByteAlphabet(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const auto byte = ByteOfCharacter(TakeCharacter(&text));
    if (!byte) return std::nullopt;
    bytes += static_cast<char>(*byte);
  }
  return bytes;
}

}  // namespace espalier

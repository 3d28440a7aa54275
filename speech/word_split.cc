#include "speech/word_split.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "speech/transcript_formats.h"

namespace espalier {
namespace {

constexpr std::string_view kReplacement = "\ufffd";
// Python's string.punctuation.
constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

// The size of the character that a first byte begins, and the range of its
// second byte.
struct LeadByte {
  size_t size = 0;  // 0: it begins none
  uint8_t low = 0x80;
  uint8_t high = 0xbf;
};

LeadByte LeadByteOf(uint8_t byte) {
  if (byte < 0x80) return {.size = 1};
  if (byte < 0xc2) return {};
  if (byte < 0xe0) return {.size = 2};
  if (byte == 0xe0) return {.size = 3, .low = 0xa0};
  if (byte == 0xed) return {.size = 3, .high = 0x9f};
  if (byte < 0xf0) return {.size = 3};
  if (byte == 0xf0) return {.size = 4, .low = 0x90};
  if (byte < 0xf4) return {.size = 4};
  if (byte == 0xf4) return {.size = 4, .high = 0x8f};
  return {};
}

// Returns the first character of `*bytes`, U+FFFD for the longest beginning of
// one, and removes it. REQUIRES: *bytes is not empty.
std::string_view TakeCharacter(std::string_view* bytes) {
  const LeadByte lead = LeadByteOf(static_cast<uint8_t>(bytes->front()));
  size_t size = 1;
  for (; size < std::min(lead.size, bytes->size()); ++size) {
    const auto byte = static_cast<uint8_t>((*bytes)[size]);
    const uint8_t low = size == 1 ? lead.low : 0x80;
    const uint8_t high = size == 1 ? lead.high : 0xbf;
    if (byte < low || byte > high) break;
  }
  const std::string_view character =
      size == lead.size ? bytes->substr(0, size) : kReplacement;
  bytes->remove_prefix(size);
  return character;
}

std::vector<std::string_view> CharactersOf(std::string_view bytes) {
  std::vector<std::string_view> characters;
  while (!bytes.empty()) characters.push_back(TakeCharacter(&bytes));
  return characters;
}

// The shortest runs of tokens that spell whole characters.
std::vector<WordTokens> SplitAtCharacters(const Tokenizer& tokenizer,
                                          std::span<const TokenId> tokens) {
  std::string all_bytes;
  for (const TokenId token : tokens) {
    all_bytes += tokenizer.spellings().Of(token).text;
  }
  const std::vector<std::string_view> all = CharactersOf(all_bytes);
  std::vector<WordTokens> parts;
  WordTokens part;
  std::string bytes;      // those of `part`
  size_t num_before = 0;  // characters before it
  for (size_t i = 0; i < tokens.size(); ++i) {
    part.tokens.push_back(tokens[i]);
    bytes += tokenizer.spellings().Of(tokens[i]).text;
    const std::vector<std::string_view> characters = CharactersOf(bytes);
    const size_t broken = static_cast<size_t>(
        std::ranges::find(characters, kReplacement) - characters.begin());
    // Whole, or broken in the whole text, too.
    const bool is_whole = broken == characters.size() ||
                          (num_before + broken < all.size() &&
                           all[num_before + broken] == kReplacement);
    if (!is_whole && i + 1 < tokens.size()) continue;
    for (const std::string_view character : characters) part.word += character;
    num_before += characters.size();
    parts.push_back(std::exchange(part, {}));
    bytes.clear();
  }
  return parts;
}

}  // namespace

bool HasSpaces(std::string_view code) {
  constexpr std::array<std::string_view, 6> kWithout = {"zh", "ja", "th",
                                                        "lo", "my", "yue"};
  return std::ranges::find(kWithout, code) == kWithout.end();
}

std::vector<WordTokens> SplitIntoWords(const Tokenizer& tokenizer,
                                       std::span<const TokenId> tokens,
                                       bool has_spaces) {
  std::vector<WordTokens> parts = SplitAtCharacters(tokenizer, tokens);
  if (!has_spaces) return parts;
  std::vector<WordTokens> words;
  for (WordTokens& part : parts) {
    const bool begins_word =
        words.empty() || part.word.starts_with(' ') ||
        kPunctuation.find(StripSpace(part.word)) != kPunctuation.npos;
    if (begins_word) {
      words.push_back(std::move(part));
      continue;
    }
    words.back().word += part.word;
    words.back().tokens.insert(words.back().tokens.end(), part.tokens.begin(),
                               part.tokens.end());
  }
  return words;
}

}  // namespace espalier

// Splits the tokens of a text into words, as openai/whisper does.
//
// Thread safety: functions without state.
// Source: openai/whisper, whisper/tokenizer.py.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

struct WordTokens {
  std::string word;  // UTF-8, with the space before it
  std::vector<TokenId> tokens;
};

// True if texts in the language have spaces between words. Chinese, Cantonese,
// Japanese, Thai, Lao and Burmese have none.
//   code  of the language, such as "en"
bool HasSpaces(std::string_view code);

// Returns the words, or parts of words, of `tokens`: with `has_spaces` each
// begins with a space or is punctuation, else they are as short as whole
// characters allow. Bytes that form no character are U+FFFD.
//   tokens  that spell text
std::vector<WordTokens> SplitIntoWords(const Tokenizer& tokenizer,
                                       std::span<const TokenId> tokens,
                                       bool has_spaces);

}  // namespace espalier

// IncrementalDetokenizer: decodes a token stream as it grows. Each token
// returns the text that is certain so far; text that later tokens may change,
// the bytes of an incomplete character, is held back.
//
// Invariant: for any tokens, the results of Feed and Finish, concatenated,
// equal Tokenizer::Decode of all tokens, byte for byte, and each result
// consists of whole characters. So
//  - bytes become a character with the token that completes it, and U+FFFD
//    where they make none, as soon as that is certain: one for each byte, or
//    one for each beginning of a character (BrokenCharacters);
//  - control symbols spell nothing, yet bytes do not join across them;
//  - numbers outside the vocabulary spell nothing, and bytes join across them;
//  - the spaces that open a text fall where the tokenizer drops them, and so do
//    those that end it: they wait for what follows.
//
// A text that continues another begins with the state that After gives it: the
// space between the two stays, and bytes of a character that the first part
// began are completed.
//
// A value of two words that the compiler copies: a beam forks it by copying.
// Thread safety: none of its own; the tokenizer may be shared.
//
//   IncrementalDetokenizer detokenizer(*tokenizer);
//   std::string text;
//   for (const TokenId token : tokens) detokenizer.Feed(token, &text);
//   detokenizer.Finish(&text);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "text/pipeline/token_spellings.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

class IncrementalDetokenizer {
 public:
  // At the opening of a text, or after something that it began with. Special
  // tokens are spelt out if `shows_special`, as DecodeOptions::show_special
  // has it. `tokenizer` must outlive this and its copies.
  explicit IncrementalDetokenizer(const Tokenizer& tokenizer,
                                  bool is_opening = true,
                                  bool shows_special = false);

  // As if `tokens` had been fed, in time of the last few of them.
  static IncrementalDetokenizer After(const Tokenizer& tokenizer,
                                      std::span<const TokenId> tokens,
                                      bool shows_special = false);

  // Appends to `text` what `token` makes certain; in time of what it appends.
  void Feed(TokenId token, std::string* text);

  // Appends the rest: U+FFFD for the bytes that wait. Spaces that wait fall.
  // The text is over then.
  void Finish(std::string* text);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  bool shows_special() const { return shows_special_; }
  // True if the next token is the first of a text: spaces that the tokenizer
  // drops there fall.
  bool drops_space() const { return drops_space_; }

 private:
  const TokenSpellings& spellings() const { return tokenizer_->spellings(); }
  bool IsShownSpecial(TokenId token) const {
    return shows_special_ && tokenizer_->is_special(token);
  }
  // True if no token before `token` affects the text after it.
  bool HidesWhatIsBefore(TokenId token) const;
  void FeedByte(char byte, std::string* text);
  void FlushBytes(std::string* text);
  void FeedText(TokenSpelling spelling, std::string* text);
  bool trims_spaces() const {
    return spellings().opening_spaces() == OpeningSpaces::kTrimmed;
  }
  // Both take part in what is trimmed.
  void FeedTrimmed(std::string_view piece, std::string* text);
  void FlushSpaces(std::string* text);

  const Tokenizer* tokenizer_;
  // Spaces that fall if the text ends with them.
  uint32_t num_spaces_ = 0;
  // Drops the leading space of the next kSpacedText, or uses the opening
  // spelling of the next token.
  bool drops_space_ : 1;
  bool shows_special_ : 1;
  // The begin of a character: bytes_[0 .. num_bytes_).
  uint8_t num_bytes_ : 2;
  char bytes_[3] = {};
};

}  // namespace espalier

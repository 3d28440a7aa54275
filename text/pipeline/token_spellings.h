// TokenSpellings: a table of the text of each token of a vocabulary.
// Tokenizer::Load builds it once, so that tokens are decoded one at a time by
// look-ups, without the library (text/tokenizer/incremental_detokenizer.h).
//
// Thread safety: constant once filled; any thread may then read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace espalier {

// Kind of a token's contribution to a text; see TokenSpelling.
enum class SpellingKind : uint8_t {
  kOutside,     // not in the vocabulary; ignored
  kNothing,     // no text, but separates bytes before and after it
  kBytes,       // bytes that form characters with their neighbours
  kText,        // text that is the same everywhere
  kSpacedText,  // text with a leading space that an opening may drop
};

struct TokenSpelling {
  SpellingKind kind = SpellingKind::kOutside;
  // UTF-8; raw bytes for kBytes; empty if there is none. Owned by the table.
  std::string_view text;
};

// Treatment of the leading spaces of kSpacedText before any other text. The
// vocabulary's words begin with a space, which the writer of the first word did
// not type.
enum class OpeningSpaces : uint8_t {
  kKept,
  kFirstDropped,  // the space of the first kSpacedText
  kAllDropped,    // one of each kSpacedText
  kOwnSpelling,   // the first token has a spelling of its own, AddOpening's
  kTrimmed,       // all spaces fall, and those that end the text fall, too
};

// Treatment of bytes that form no character.
enum class BrokenCharacters : uint8_t {
  kEachByte,  // U+FFFD for each
  kEachPart,  // U+FFFD for each longest beginning of a character
};

class TokenSpellings {
 public:
  // The next token, from 0 on.
  void Add(SpellingKind kind, std::string_view text);
  // Makes `token` kOutside.
  // REQUIRES: it is in [0, vocab_size()).
  void Remove(TokenId token) { kinds_[token] = SpellingKind::kOutside; }
  // Bytes of the longest.
  size_t max_bytes() const { return max_bytes_; }
  void set_opening_spaces(OpeningSpaces spaces) { opening_spaces_ = spaces; }
  void set_broken_characters(BrokenCharacters broken) { broken_ = broken; }
  // Sets the spelling of `token` as the first of a text.
  // REQUIRES: after the one before, in the order of tokens.
  void AddOpening(TokenId token, SpellingKind kind, std::string_view text);

  // Returns the spelling of any number; kOutside if not in [0, vocab_size()).
  TokenSpelling Of(TokenId token) const {
    // A negative number becomes one that is too large.
    const size_t idx = static_cast<uint32_t>(token);
    if (idx >= kinds_.size()) return {};
    return {kinds_[idx], std::string_view(text_).substr(
                             begins_[idx], begins_[idx + 1] - begins_[idx])};
  }
  // As Of for the first token of a text; equal unless AddOpening was called.
  TokenSpelling OpeningOf(TokenId token) const;
  OpeningSpaces opening_spaces() const { return opening_spaces_; }
  BrokenCharacters broken_characters() const { return broken_; }
  int vocab_size() const { return static_cast<int>(kinds_.size()); }

 private:
  // Spellings of all tokens, concatenated.
  std::string text_;
  std::vector<uint32_t> begins_ = {0};  // [vocab_size + 1], into text_
  std::vector<SpellingKind> kinds_;     // [vocab_size]
  struct Opening {
    TokenId token;
    SpellingKind kind;
    std::string text;
  };
  std::vector<Opening> openings_;  // ascending
  size_t max_bytes_ = 0;
  OpeningSpaces opening_spaces_ = OpeningSpaces::kKept;
  BrokenCharacters broken_ = BrokenCharacters::kEachByte;
};

}  // namespace espalier

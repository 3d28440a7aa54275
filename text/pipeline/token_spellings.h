// TokenSpellings: what each token of a vocabulary adds to a text, in one table.
// Tokenizer::Load makes it once, so that tokens become text by look-ups alone,
// one at a time and without the library
// (text/tokenizer/incremental_detokenizer.h).
//
// Thread safety: constant once filled; any thread may then read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace espalier {

// What a token is to a text; see TokenSpelling.
enum class SpellingKind : uint8_t {
  kOutside,     // no token of the vocabulary: as if it were not there
  kNothing,     // no text, but bytes before it and after it do not join
  kBytes,       // bytes, which with their neighbours make characters
  kText,        // text that is the same everywhere
  kSpacedText,  // text with a space in front that may fall at the opening
};

struct TokenSpelling {
  SpellingKind kind = SpellingKind::kOutside;
  // UTF-8; of kBytes the bytes; empty where there is none. Belongs to the
  // table.
  std::string_view text;
};

// What becomes of the spaces in front of kSpacedText that stand before any
// other text: of the vocabulary's words, the first began with a space that no
// writer put there.
enum class OpeningSpaces : uint8_t {
  kKept,
  kFirstDropped,  // that of the first kSpacedText
  kAllDropped,    // one of each kSpacedText
  kOwnSpelling,   // the first token has a spelling of its own, AddOpening's
  kTrimmed,       // all spaces fall, and those that end the text fall, too
};

// What becomes of bytes that make no character.
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
  // How `token` is spelt where it is the first of a text.
  // REQUIRES: after the one before, in the order of tokens.
  void AddOpening(TokenId token, SpellingKind kind, std::string_view text);

  // Of any number; outside [0, vocab_size()) it is kOutside.
  TokenSpelling Of(TokenId token) const {
    // A negative number becomes one that is too large.
    const size_t idx = static_cast<uint32_t>(token);
    if (idx >= kinds_.size()) return {};
    return {kinds_[idx], std::string_view(text_).substr(
                             begins_[idx], begins_[idx + 1] - begins_[idx])};
  }
  // As the first of a text; without an AddOpening as anywhere.
  TokenSpelling OpeningOf(TokenId token) const;
  OpeningSpaces opening_spaces() const { return opening_spaces_; }
  BrokenCharacters broken_characters() const { return broken_; }
  int vocab_size() const { return static_cast<int>(kinds_.size()); }

 private:
  std::string text_;                    // of all tokens, one after the other
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

// TokenSpellings: what each token of a vocabulary adds to a text, in one table.
// Tokenizer::Load makes it once, so that tokens become text by look-ups alone,
// one at a time and without the library (text/incremental_detokenizer.h).
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
  kByte,        // one byte, which with its neighbours makes a character
  kText,        // text that is the same everywhere
  kSpacedText,  // text with a space in front that may fall at the opening
};

struct TokenSpelling {
  SpellingKind kind = SpellingKind::kOutside;
  // UTF-8; of a kByte the byte; empty where there is none. Belongs to the
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

  // Of any number; outside [0, vocab_size()) it is kOutside.
  TokenSpelling Of(TokenId token) const {
    // A negative number becomes one that is too large.
    const size_t idx = static_cast<uint32_t>(token);
    if (idx >= kinds_.size()) return {};
    return {kinds_[idx], std::string_view(text_).substr(
                             begins_[idx], begins_[idx + 1] - begins_[idx])};
  }
  OpeningSpaces opening_spaces() const { return opening_spaces_; }
  int vocab_size() const { return static_cast<int>(kinds_.size()); }

 private:
  std::string text_;                    // of all tokens, one after the other
  std::vector<uint32_t> begins_ = {0};  // [vocab_size + 1], into text_
  std::vector<SpellingKind> kinds_;     // [vocab_size]
  size_t max_bytes_ = 0;
  OpeningSpaces opening_spaces_ = OpeningSpaces::kKept;
};

}  // namespace espalier

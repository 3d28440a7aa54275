// TokenNames: what answers call tokens.
//
// Thread safety: constant; any thread may call.
#pragma once

#include <string>
#include <string_view>

#include "base/ids.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::openai {

class TokenNames {
 public:
  // `tokenizer` outlives this; null, or `as_ids`: all names are "token_id:7".
  TokenNames(const Tokenizer* tokenizer, bool as_ids)
      : tokenizer_(as_ids ? nullptr : tokenizer) {}

  // The bytes that a token adds to a text, wherever it stands; of a special
  // token, which adds none, its name.
  std::string BytesOf(TokenId token) const;

  // These, where they are characters; else "bytes:\xe2\x80", as OpenAI's API
  // writes them.
  std::string NameOf(TokenId token) const;

 private:
  const Tokenizer* tokenizer_;
};

// Characters of a text, as Python counts them.
// REQUIRES: UTF-8.
size_t CountCharacters(std::string_view text);

}  // namespace espalier::openai

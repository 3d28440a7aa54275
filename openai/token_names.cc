#include "openai/token_names.h"

#include <algorithm>
#include <cstdio>

#include "base/json.h"
#include "base/status.h"

namespace espalier::openai {

std::string TokenNames::BytesOf(TokenId token) const {
  if (tokenizer_ == nullptr) return Concat("token_id:", token);
  const TokenSpelling spelling = tokenizer_->spellings().Of(token);
  switch (spelling.kind) {
    case SpellingKind::kBytes:
    case SpellingKind::kText:
    case SpellingKind::kSpacedText:
      return std::string(spelling.text);
    case SpellingKind::kOutside:
    case SpellingKind::kNothing:
      break;
  }
  return tokenizer_->Piece(token);
}

std::string TokenNames::NameOf(TokenId token) const {
  std::string bytes = BytesOf(token);
  if (IsUtf8(bytes)) return bytes;
  std::string name = "bytes:";
  for (const unsigned char byte : bytes) {
    char escape[5];
    std::snprintf(escape, sizeof(escape), "\\x%02x", byte);
    name += escape;
  }
  return name;
}

size_t CountCharacters(std::string_view text) {
  return std::ranges::count_if(text, [](unsigned char byte) {
    return (byte & 0xC0) != 0x80;  // what continues a character
  });
}

}  // namespace espalier::openai

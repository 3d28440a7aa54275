#include "request/token_bytes.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "text/pipeline/token_spellings.h"

namespace espalier {
namespace {

bool AddsText(SpellingKind kind) {
  return kind == SpellingKind::kBytes || kind == SpellingKind::kText ||
         kind == SpellingKind::kSpacedText;
}

std::string BytesOf(const TokenSpelling& spelling) {
  return AddsText(spelling.kind) ? std::string(spelling.text) : std::string();
}

// The bytes of a text's first token.
std::string FirstBytesOf(const TokenSpellings& spellings, TokenId token) {
  const OpeningSpaces spaces = spellings.opening_spaces();
  if (spaces == OpeningSpaces::kOwnSpelling) {
    return BytesOf(spellings.OpeningOf(token));
  }
  const TokenSpelling spelling = spellings.Of(token);
  std::string bytes = BytesOf(spelling);
  if (spaces == OpeningSpaces::kTrimmed) {
    bytes.erase(0, std::min(bytes.find_first_not_of(' '), bytes.size()));
  } else if (spelling.kind == SpellingKind::kSpacedText) {
    bytes.erase(0, 1);
  }
  return bytes;
}

// Replaces `*bytes`, those of a token, if it is a mark or has a mark's byte.
void SpellMarks(std::span<const ToolCallMark> marks, TokenId token,
                std::string* bytes) {
  for (const ToolCallMark& mark : marks) {
    if (bytes->find(mark.byte) != bytes->npos) bytes->clear();
  }
  const auto mark = std::ranges::find(marks, token, &ToolCallMark::token);
  if (mark != marks.end()) bytes->assign(1, mark->byte);
}

}  // namespace

TokenVocabulary TokenBytesOf(const Tokenizer& tokenizer,
                             std::span<const TokenId> without,
                             std::optional<int> num_tokens,
                             std::span<const ToolCallMark> marks) {
  const TokenSpellings& spellings = tokenizer.spellings();
  std::vector<std::string> bytes;
  std::vector<std::string> first_bytes;
  const bool is_same = spellings.opening_spaces() == OpeningSpaces::kKept;
  const int vocab_size = num_tokens.value_or(tokenizer.vocab_size());
  for (TokenId token = 0; token < vocab_size; ++token) {
    const bool adds = token < tokenizer.vocab_size() &&
                      !std::ranges::binary_search(without, token);
    bytes.push_back(adds ? BytesOf(spellings.Of(token)) : "");
    if (adds) SpellMarks(marks, token, &bytes.back());
    if (is_same) continue;
    first_bytes.push_back(adds ? FirstBytesOf(spellings, token) : "");
    if (adds) SpellMarks(marks, token, &first_bytes.back());
  }
  if (is_same) return TokenVocabulary(std::move(bytes));
  const bool drops_all =
      spellings.opening_spaces() == OpeningSpaces::kAllDropped ||
      spellings.opening_spaces() == OpeningSpaces::kTrimmed;
  return TokenVocabulary(std::move(bytes), std::move(first_bytes), drops_all);
}

}  // namespace espalier

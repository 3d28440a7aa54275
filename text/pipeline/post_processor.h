// Tokens around a text, from the "post_processor" of a tokenizer.json:
// TemplateProcessing for single texts, BertProcessing, RobertaProcessing,
// ByteLevel, which adds nothing, and sequences of these.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/json.h"

namespace espalier {

struct TokensAround {
  std::vector<TokenId> before;
  std::vector<TokenId> after;
};

// Reads `value`, at `place` of a tokenizer.json; null adds no tokens.
// Errors: kInvalidArgument naming the field and its value; a token is in
// [0, vocab_size).
absl::StatusOr<TokensAround> ReadPostProcessor(const json::value& value,
                                               const std::string& place,
                                               int vocab_size);

}  // namespace espalier

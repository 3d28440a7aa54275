// TokenizerClass: which of transformers' tokenizer classes a model directory
// is read by. Some take of a tokenizer.json the vocabulary alone and put steps
// of their own around it; others, the generic class among them, take the file
// as it is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "text/tokenizer/tokenizer_config.h"

namespace espalier {

enum class TokenizerClass : uint8_t {
  kGeneric,
  kLlama,
  kGemma,
  kQwen2,
  kGpt2,
  kRoberta,  // BART's as well
  kT5,
  kNllb,
  kMbart,  // mBART-cc25
  kMbart50,
  kM2m100,
  kOther,  // none whose steps are known here
};

// The class of `directory`: that of tokenizer_config.json, or else of
// config.json, or else of the model's type, which corrects some of them. `file`
// is the tokenizer.json, or nullptr.
// Errors: as TokenizerConfigFile::Load; kInvalidArgument naming the file if a
// class is no string.
absl::StatusOr<TokenizerClass> FindTokenizerClass(
    const std::string& directory, const TokenizerConfigFile& config,
    const json::object* file);

// "LlamaTokenizer", for errors.
std::string_view NameOf(TokenizerClass tokenizer_class);

}  // namespace espalier

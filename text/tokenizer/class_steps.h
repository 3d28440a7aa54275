// Steps that transformers' tokenizer classes put around a vocabulary, as parts
// of a tokenizer.json: normalizer, pre-tokenizer, decoder and model options.
#pragma once

#include "absl/status/statusor.h"
#include "base/json.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/token_settings.h"
#include "text/tokenizer/tokenizer_class.h"

namespace espalier {

// Gives `settings` the class's default tokens for roles that the files do not
// mention.
void SetDefaultRoles(TokenizerClass tokenizer_class, TokenSettings* settings);

// True if a class replaces the steps of a tokenizer.json with its own.
bool HasOwnSteps(TokenizerClass tokenizer_class);

// A tokenizer.json of `model`, which has "vocab" and "merges" alone, with the
// steps of the class.
// REQUIRES: HasOwnSteps.
// Errors: kInvalidArgument naming the file and the flag that is wrong.
absl::StatusOr<json::object> AddClassSteps(TokenizerClass tokenizer_class,
                                           json::object model,
                                           const TokenSettings& settings);

// The tokenizer.json that the generic class makes of a SentencePiece model,
// which follows the model's own settings.
// Errors: as AddClassSteps.
absl::StatusOr<json::object> GenericFileOf(const SentencePieceModel& model,
                                           TokenSettings* settings);

// The vocabulary and merges of BPE that classes of their own make of it.
json::object BpeModelOf(const SentencePieceModel& model);

}  // namespace espalier

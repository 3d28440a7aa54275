// The tokenizer of an M2M100 as transformers writes it, and of SMaLL-100
// (text/tokenizer/numbered_pieces_tokenizer.h). sentencepiece.bpe.model cuts
// texts into pieces, vocab.json numbers them, and the tokens of languages
// ("__en__") follow in the order of the class's list.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// Reads sentencepiece.bpe.model, vocab.json and, if they are there, the files
// of TokenSettings in `directory`. None need be trusted.
// Errors: as ReadFile; kInvalidArgument naming the file and what is wrong with
// it, or the field that asks for what is not supported: another
// tokenizer_class, sampling (sp_model_kwargs), and added tokens other than
// roles and languages.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadM2m100Tokenizer(
    const std::string& directory);

}  // namespace espalier

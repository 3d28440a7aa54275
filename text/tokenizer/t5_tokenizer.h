// The tokenizer of a T5 model that has a SentencePiece model, spiece.model, and
// no tokenizer.json. It equals the one that transformers' T5Tokenizer makes of
// it. After its pieces come tokens for gaps of a text, <extra_id_99> to
// <extra_id_0>, or as many as tokenizer_config.json says.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// Reads spiece.model and, if they are there, config.json and the files beside
// it that say more of its tokens (TokenSettings). None need be trusted.
// Errors: as ReadFile; kInvalidArgument naming the file and what is wrong with
// it: another tokenizer_class than T5's or mT5's or, where none is named,
// another model_type; a pad, EOS or unknown token that is no piece; a token
// that is listed with another id than it has; no SentencePiece model, one whose
// pieces are not of a unigram model, or whose pad, EOS and unknown tokens are
// not the first three.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadT5Tokenizer(
    const std::string& directory);

}  // namespace espalier

// The tokenizer of a Marian model as transformers writes it
// (text/tokenizer/numbered_pieces_tokenizer.h). source.spm cuts the texts that
// are translated, target.spm translations, and vocab.json numbers the pieces of
// both, or in a directory of CTranslate2 without it shared_vocabulary.json, to
// which <pad> is added. tokenizer_config.json may name the tokens that have a
// role. Tokens and texts are those of transformers' MarianTokenizer with
// split_special_tokens and without sacremoses.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// Reads source.spm, target.spm, the vocabulary and, if they are there,
// tokenizer_config.json and, unless that has added_tokens_decoder,
// special_tokens_map.json and added_tokens.json in `directory`. None need be
// trusted.
// Errors: as ReadFile; kInvalidArgument naming the file and what is wrong with
// it, or the field that asks for what is not supported: vocabularies of source
// and target that differ (separate_vocabs), sampling (sp_model_kwargs), and
// further added tokens.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadMarianTokenizer(
    const std::string& directory);

}  // namespace espalier

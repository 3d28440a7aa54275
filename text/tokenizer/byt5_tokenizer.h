// The tokenizer of a ByT5, which has no vocabulary file: a text is its bytes,
// each of id 3 and more, after pad, EOS and the unknown token; 125 special
// tokens, <extra_id_0> and so on, follow.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// True if the tokenizer_config.json in `directory` is that of a ByT5.
// Errors: as TokenizerConfigFile::Load.
absl::StatusOr<bool> IsByt5(const std::string& directory);

// Makes the tokenizer as transformers' ByT5Tokenizer does. EOS follows a
// prompt. Files need not be trusted.
// Errors: as TokenSettings::Load; kInvalidArgument naming tokens whose ids
// differ from those in the files.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadByt5Tokenizer(
    const std::string& directory);

}  // namespace espalier

// The tokenizer of a directory that has a tokenizer.json, a tokenizer.model
// with files that say more of its tokens, or a vocab.json and a merges.txt:
// that which transformers' AutoTokenizer makes of it. Each becomes the object
// of a tokenizer.json, to which are added the tokens that the other files list
// (text/tokenizer/token_settings.h), by the class that reads the directory
// (text/tokenizer/tokenizer_class.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// `file` is tokenizer.json, tokenizer.model or merges.txt. Files need not be
// trusted.
// Errors: as ReadFile; kInvalidArgument naming the file, the field and its
// value, for unsupported values and for tokens whose ids differ from those in
// the files.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadDirectoryTokenizer(
    const std::string& directory, std::string_view file);

}  // namespace espalier

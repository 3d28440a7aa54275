// A tokenizer of any size, for models with random weights: a token for each
// byte, and random words of up to 11 letters, one in twenty of up to 3 digits.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// Writes the tokenizer to a file in the directory for temporary files, loads
// it, and removes the file.
// Errors: as Tokenizer::Load; kUnavailable if the file cannot be written.
// REQUIRES: vocab_size >= 256.
absl::StatusOr<std::shared_ptr<const Tokenizer>> RandomTokenizer(
    int vocab_size);

}  // namespace espalier

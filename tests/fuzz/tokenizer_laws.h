// Invariants of a tokenizer of any accepted file, and tokenizers for tests.
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer/tokenizer.h"

namespace espalier::fuzz {

// Encodes some texts and decodes their tokens: these are of the vocabulary, the
// same each time, as many as a limit lets through, and their text is that of an
// IncrementalDetokenizer.
void CheckTokenizer(const Tokenizer& tokenizer);

// "tokenizer" of a file of tests/data/.
std::unique_ptr<Tokenizer> LoadDataTokenizer(const std::string& path);

}  // namespace espalier::fuzz

// vocab.json and merges.txt, the files of byte-level BPE as GPT-2, RoBERTa,
// BART and Qwen were first published, without a tokenizer.json.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "base/json.h"

namespace espalier {

// The "vocab" and "merges" of a tokenizer.json's model. `*num_bytes` is the
// size of merges.txt.
// Errors: as ReadFile; kInvalidArgument naming the file if vocab.json holds no
// object.
absl::StatusOr<json::object> ReadVocabAndMerges(const std::string& directory,
                                                size_t* num_bytes);

}  // namespace espalier

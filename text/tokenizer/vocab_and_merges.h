// The tokenizer of a GPT-2, RoBERTa or BART model as it was first published,
// vocab.json and merges.txt without a tokenizer.json: that of the
// tokenizer.json which transformers' GPT2Tokenizer or RobertaTokenizer, BART's
// as well, makes of them. Byte-level BPE with GPT-2's pattern; <s> and </s>
// stand around a prompt of the latter.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// Reads vocab.json, merges.txt and, if they are there, tokenizer_config.json
// and, where that names no tokenizer_class, the model_type of config.json, in
// `directory`. None need be trusted.
// Errors: as ReadFile; kInvalidArgument naming the file and what is wrong with
// it: another class, whose pattern is another one, a token with a role that
// vocab.json lacks, an added_tokens.json, and as JsonTokenizer.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadVocabAndMerges(
    const std::string& directory);

}  // namespace espalier

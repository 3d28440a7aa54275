// Parts that the tokenizers of T5 (text/tokenizer/t5_tokenizer.h) and ByT5
// (text/tokenizer/byt5_tokenizer.h) have in common: special tokens that stand
// for gaps in a text, <extra_id_0> and so on, and EOS after a prompt.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "text/tokenizer/token_settings.h"
#include "text/tokenizer/tokenizer_config.h"

namespace espalier {

// Returns the number of gaps: extra_ids of the file, or else `otherwise`.
// Errors: kInvalidArgument naming the file, the field and its value.
absl::StatusOr<int64_t> NumExtraIds(const TokenizerConfigFile& config,
                                    int64_t otherwise);

// Returns "<extra_id_7>".
std::string NameOfGap(int64_t i);

// Makes the gaps the further special tokens.
void SetGaps(int64_t num_extra_ids, TokenSettings* settings);

// Returns a post_processor that ends a prompt with EOS.
json::object EndWithEos(const std::string& eos, int64_t eos_id);

}  // namespace espalier

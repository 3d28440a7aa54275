// The "model" of a tokenizer.json: its vocabulary, and BPE or Unigram over it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/json.h"
#include "text/pipeline/added_tokens.h"
#include "text/pipeline/subword_model.h"
#include "text/pipeline/vocabulary.h"

namespace espalier {

struct SubwordModelFile {
  std::unique_ptr<const Vocabulary> vocabulary;
  std::unique_ptr<SubwordModel> model;  // over `vocabulary`
  std::optional<TokenId> unk;
};

// Reads `value`, at `place` of the file. `is_byte_level`: the pre-tokenizer
// outputs bytes. No piece is encoded as a special token of `added` that the
// vocabulary has too, except single characters, which some texts need.
// Errors: kInvalidArgument naming the field and its value.
absl::StatusOr<SubwordModelFile> ReadSubwordModel(const json::value& value,
                                                  const std::string& place,
                                                  bool is_byte_level,
                                                  const AddedTokens& added);

}  // namespace espalier

// AddedTokenTable: the added tokens of a tokenizer.json under construction. Ids
// are assigned as in Hugging Face's library: a token of the vocabulary keeps
// its id; a new one gets the next id after the vocabulary and the added tokens.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/json.h"
#include "text/pipeline/vocabulary.h"
#include "text/tokenizer/token_settings.h"

namespace espalier {

class AddedTokenTable {
 public:
  // Starts with the "model" and the "added_tokens" of `file`, which must
  // outlive this and not change.
  explicit AddedTokenTable(const json::object& file);

  // Adds `token`, or sets the flags of the entry with its spelling; a special
  // token stays special.
  void Add(const TokenEntry& token);
  bool Has(std::string_view content) const;

  // Adds the listed tokens in the order of their ids, and then those with a
  // role and further special ones that are none of them. `path` is that of the
  // vocabulary.
  // Errors: kInvalidArgument naming a token that is listed with another id than
  // it has.
  absl::Status AddTokensOf(const TokenSettings& settings,
                           const std::string& path);

  // -1 if neither the vocabulary nor the table has it.
  int64_t IdOf(std::string_view content) const;

  // As "added_tokens".
  json::array ToJson() const;

 private:
  const json::object* vocab_ = nullptr;  // set for BPE
  PieceIndex pieces_;                    // used for Unigram
  int64_t vocab_size_ = 0;
  // Ids of added tokens.
  std::map<std::string, int64_t, std::less<>> ids_;
  std::map<int64_t, json::object> tokens_;  // by their ids
};

}  // namespace espalier

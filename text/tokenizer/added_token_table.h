// AddedTokenTable: the added tokens of a tokenizer.json that is being made, and
// their ids, which are those that Hugging Face's library gives: of a token that
// is there the one it has, of others the next after the vocabulary and the
// added tokens.
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
  // Of the "model" and the "added_tokens" of `file`, which must outlive this
  // and not change.
  explicit AddedTokenTable(const json::object& file);

  // Adds `token`, or gives the one of its spelling these flags; what was
  // special stays so.
  void Add(const TokenEntry& token);
  bool Has(std::string_view content) const;

  // -1 if neither the vocabulary nor the table has it.
  int64_t IdOf(std::string_view content) const;

  // As "added_tokens".
  json::array ToJson() const;

 private:
  const json::object* vocab_ = nullptr;  // of a BPE
  PieceIndex pieces_;                    // of a Unigram
  int64_t vocab_size_ = 0;
  std::map<std::string, int64_t, std::less<>> ids_;  // of added tokens
  std::map<int64_t, json::object> tokens_;           // by their ids
};

}  // namespace espalier

// SentencePieceModel: what a SentencePiece model file holds, for a tokenizer of
// our own. Views are of the file's bytes.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace espalier {

struct SentencePieceModel {
  struct Entry {
    std::string_view piece;
    float score = 0;
  };
  std::vector<Entry> pieces;  // by id
  int unknown_id = -1;        // the first of its kind; -1: there is none
  bool is_unigram = true;
  std::string_view charsmap;  // normalization rules; may be empty
};

// Errors: as CheckSentencePieceModel.
absl::StatusOr<SentencePieceModel> ReadSentencePieceModel(
    std::string_view bytes);

}  // namespace espalier

// SentencePieceModel: what a SentencePiece model file holds, for a tokenizer of
// our own. Views are of the file's bytes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace espalier {

struct SentencePieceModel {
  // As sentencepiece_model.proto numbers them.
  enum class Type : uint8_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6,
  };
  struct Entry {
    std::string_view piece;
    float score = 0;
    Type type = Type::kNormal;
  };
  // A token with a role as training named it; it has none with a negative id.
  struct Role {
    int id;
    std::string_view piece;
  };

  std::vector<Entry> pieces;  // by id
  int unknown_id = -1;        // the first of its kind; -1: there is none
  bool is_unigram = true;
  bool byte_fallback = false;
  Role unk = {0, "<unk>"};
  Role bos = {1, "<s>"};
  Role eos = {2, "</s>"};
  std::string_view charsmap;  // normalization rules; may be empty
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// Errors: as CheckSentencePieceModel.
absl::StatusOr<SentencePieceModel> ReadSentencePieceModel(
    std::string_view bytes);

}  // namespace espalier

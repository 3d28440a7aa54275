// SentencePiece models written field by field, for what no trained model shows.
//
//   FakeTokenizerModel model;
//   model.pieces = {{"<unk>", PieceType::kUnknown}, {"\u2581a"}};
//   const auto tokenizer = model.Load();
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "tests/scratch_directory.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::testing {

// Fields in Protocol Buffers' wire format.
inline std::string Varint(size_t value) {
  std::string varint;
  for (; value > 0x7F; value >>= 7) {
    varint += static_cast<char>((value & 0x7F) | 0x80);
  }
  return varint + static_cast<char>(value);
}

inline std::string Field(int number, int value) {
  return Varint(number << 3) + Varint(value);
}

inline std::string Field(int number, const std::string& bytes) {
  return Varint(number << 3 | 2) + Varint(bytes.size()) + bytes;
}

// As sentencepiece_model.proto numbers them.
enum class PieceType {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct MadeUpPiece {
  std::string piece;
  PieceType type = PieceType::kNormal;
};

struct FakeTokenizerModel {
  std::string Serialized() const {
    std::string model;
    for (const MadeUpPiece& p : pieces) {
      model += Field(1, Field(1, p.piece) + Field(3, static_cast<int>(p.type)));
    }
    std::string trainer = Field(35, byte_fallback);
    if (is_bpe) trainer += Field(3, 2);
    if (unk_surface) trainer += Field(44, *unk_surface);
    return model + Field(2, trainer) +
           Field(3, Field(3, add_dummy_prefix) +
                        Field(4, remove_extra_whitespaces));
  }

  // Through a file, as users do.
  absl::StatusOr<std::unique_ptr<Tokenizer>> Load() const {
    const ScratchDirectory scratch;
    return Tokenizer::Load(scratch.Write("made_up.model", Serialized()));
  }

  // All 256, as a model with byte_fallback must have them.
  void AddBytePieces() {
    constexpr char kDigits[] = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; ++byte) {
      const std::string digits = {kDigits[byte >> 4], kDigits[byte & 15]};
      pieces.push_back({"<0x" + digits + ">", PieceType::kByte});
    }
    byte_fallback = true;
  }

  std::vector<MadeUpPiece> pieces;
  bool is_bpe = false;  // else unigram
  bool byte_fallback = false;
  std::optional<std::string> unk_surface;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
};

}  // namespace espalier::testing

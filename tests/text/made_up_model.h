// SentencePiece models written field by field, for what no trained model shows.
//
//   MadeUpModel model;
//   model.pieces = {{"<unk>", PieceType::kUnknown}, {"\u2581a"}};
//   const auto tokenizer = model.Load();
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "tests/scratch_directory.h"
#include "text/tokenizer.h"

namespace espalier::testing {

// A varint field in Protocol Buffers' wire format.
// REQUIRES: 0 <= value < 128.
inline std::string VarintField(int number, int value) {
  std::string field;
  for (int tag = number << 3; tag > 0; tag >>= 7) {
    field += static_cast<char>((tag & 0x7F) | (tag > 0x7F ? 0x80 : 0));
  }
  return field + static_cast<char>(value);
}

// A length-delimited field.
inline std::string Field(int number, const std::string& bytes) {
  std::string field;
  for (int tag = number << 3 | 2; tag > 0; tag >>= 7) {
    field += static_cast<char>((tag & 0x7F) | (tag > 0x7F ? 0x80 : 0));
  }
  for (size_t rest = bytes.size();; rest >>= 7) {
    field += static_cast<char>((rest & 0x7F) | (rest > 0x7F ? 0x80 : 0));
    if (rest <= 0x7F) return field + bytes;
  }
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

struct MadeUpModel {
  // The fields that only a test of the format needs stay out.
  std::string Serialized() const {
    std::string model;
    for (const MadeUpPiece& p : pieces) {
      model += Field(
          1, Field(1, p.piece) + VarintField(3, static_cast<int>(p.type)));
    }
    std::string trainer = VarintField(35, byte_fallback);
    if (unk_surface) trainer += Field(44, *unk_surface);
    return model + Field(2, trainer) +
           Field(3, VarintField(3, add_dummy_prefix) +
                        VarintField(4, remove_extra_whitespaces));
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
  bool byte_fallback = false;
  std::optional<std::string> unk_surface;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
};

}  // namespace espalier::testing

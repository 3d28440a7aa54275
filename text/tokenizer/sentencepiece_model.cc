#include "text/tokenizer/sentencepiece_model.h"

#include <bit>
#include <cstdint>

#include "base/status.h"
#include "text/pipeline/proto_fields.h"
#include "text/tokenizer/sentencepiece_check.h"

namespace espalier {
namespace {

// Fields and values of sentencepiece_model.proto.
constexpr uint32_t kPiecesField = 1;    // in ModelProto
constexpr uint32_t kTrainerSpec = 2;    // in ModelProto
constexpr uint32_t kNormalizer = 3;     // in ModelProto
constexpr uint32_t kPieceText = 1;      // in SentencePiece
constexpr uint32_t kScore = 2;          // in SentencePiece
constexpr uint32_t kPieceType = 3;      // in SentencePiece
constexpr uint32_t kUnknown = 2;        // a type
constexpr uint32_t kModelType = 3;      // in TrainerSpec
constexpr uint32_t kUnigram = 1;        // a model type
constexpr uint32_t kCharsmapField = 2;  // in NormalizerSpec

float ScoreOf(std::string_view bytes) {
  uint32_t bits = 0;
  for (int i = 3; i >= 0; --i)
    bits = bits << 8 | static_cast<uint8_t>(bytes[i]);
  return std::bit_cast<float>(bits);
}

absl::Status ReadPiece(std::string_view message, SentencePieceModel* model) {
  SentencePieceModel::Entry entry;
  uint64_t type = 0;
  RETURN_IF_ERROR(ForEachField(message, [&](const ProtoField& field) {
    if (field.Is(kPieceText, ProtoField::kBytes)) entry.piece = field.bytes;
    if (field.Is(kScore, ProtoField::kFixed32)) {
      entry.score = ScoreOf(field.bytes);
    }
    if (field.Is(kPieceType, ProtoField::kVarint)) type = field.varint;
    return absl::OkStatus();
  }));
  if (type == kUnknown && model->unknown_id < 0) {
    model->unknown_id = static_cast<int>(model->pieces.size());
  }
  model->pieces.push_back(entry);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SentencePieceModel> ReadSentencePieceModel(
    std::string_view bytes) {
  RETURN_IF_ERROR(CheckSentencePieceModel(bytes));
  SentencePieceModel model;
  RETURN_IF_ERROR(ForEachField(bytes, [&](const ProtoField& field) {
    if (field.Is(kPiecesField, ProtoField::kBytes)) {
      return ReadPiece(field.bytes, &model);
    }
    if (field.Is(kTrainerSpec, ProtoField::kBytes)) {
      return ForEachField(field.bytes, [&](const ProtoField& inner) {
        if (inner.Is(kModelType, ProtoField::kVarint)) {
          model.is_unigram = inner.varint == kUnigram;
        }
        return absl::OkStatus();
      });
    }
    if (field.Is(kNormalizer, ProtoField::kBytes)) {
      return ForEachField(field.bytes, [&](const ProtoField& inner) {
        if (inner.Is(kCharsmapField, ProtoField::kBytes)) {
          model.charsmap = inner.bytes;
        }
        return absl::OkStatus();
      });
    }
    return absl::OkStatus();
  }));
  return model;
}

}  // namespace espalier

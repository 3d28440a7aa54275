#include "text/tokenizer/sentencepiece_model.h"

#include <bit>
#include <cstdint>

#include "base/status.h"
#include "text/pipeline/proto_fields.h"
#include "text/tokenizer/sentencepiece_check.h"

namespace espalier {
namespace {

// Fields and values of sentencepiece_model.proto.
constexpr uint32_t kPiecesField = 1;  // in ModelProto
constexpr uint32_t kTrainerSpec = 2;  // in ModelProto
constexpr uint32_t kNormalizer = 3;   // in ModelProto
constexpr uint32_t kPieceText = 1;    // in SentencePiece
constexpr uint32_t kScore = 2;        // in SentencePiece
constexpr uint32_t kPieceType = 3;    // in SentencePiece
constexpr uint32_t kUnigram = 1;      // a model type

float ScoreOf(std::string_view bytes) {
  uint32_t bits = 0;
  for (int i = 3; i >= 0; --i)
    bits = bits << 8 | static_cast<uint8_t>(bytes[i]);
  return std::bit_cast<float>(bits);
}

absl::Status ReadPiece(std::string_view message, SentencePieceModel* model) {
  SentencePieceModel::Entry entry;
  RETURN_IF_ERROR(ForEachField(message, [&](const ProtoField& field) {
    if (field.Is(kPieceText, ProtoField::kBytes)) entry.piece = field.bytes;
    if (field.Is(kScore, ProtoField::kFixed32)) {
      entry.score = ScoreOf(field.bytes);
    }
    if (field.Is(kPieceType, ProtoField::kVarint) && field.varint >= 1 &&
        field.varint <= 6) {
      entry.type = static_cast<SentencePieceModel::Type>(field.varint);
    }
    return absl::OkStatus();
  }));
  if (entry.type == SentencePieceModel::Type::kUnknown &&
      model->unknown_id < 0) {
    model->unknown_id = static_cast<int>(model->pieces.size());
  }
  model->pieces.push_back(entry);
  return absl::OkStatus();
}

// Reads a field of TrainerSpec.
void ReadTrainerField(const ProtoField& field, SentencePieceModel* model) {
  if (field.type == ProtoField::kVarint) {
    switch (field.number) {
      case 3:
        model->is_unigram = field.varint == kUnigram;
        break;
      case 35:
        model->byte_fallback = field.varint != 0;
        break;
      case 40:
        model->unk.id = static_cast<int32_t>(field.varint);
        break;
      case 41:
        model->bos.id = static_cast<int32_t>(field.varint);
        break;
      case 42:
        model->eos.id = static_cast<int32_t>(field.varint);
        break;
      default:
        break;
    }
  } else if (field.type == ProtoField::kBytes && !field.bytes.empty()) {
    if (field.number == 45) model->unk.piece = field.bytes;
    if (field.number == 46) model->bos.piece = field.bytes;
    if (field.number == 47) model->eos.piece = field.bytes;
  }
}

// Reads a field of NormalizerSpec.
void ReadNormalizerField(const ProtoField& field, SentencePieceModel* model) {
  if (field.Is(2, ProtoField::kBytes)) model->charsmap = field.bytes;
  if (field.type != ProtoField::kVarint) return;
  if (field.number == 3) model->add_dummy_prefix = field.varint != 0;
  if (field.number == 4) model->remove_extra_whitespaces = field.varint != 0;
  if (field.number == 5) model->escape_whitespaces = field.varint != 0;
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
        ReadTrainerField(inner, &model);
        return absl::OkStatus();
      });
    }
    if (field.Is(kNormalizer, ProtoField::kBytes)) {
      return ForEachField(field.bytes, [&](const ProtoField& inner) {
        ReadNormalizerField(inner, &model);
        return absl::OkStatus();
      });
    }
    return absl::OkStatus();
  }));
  return model;
}

}  // namespace espalier

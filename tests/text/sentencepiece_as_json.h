// A unigram SentencePiece model as the tokenizer.json that it would be
// converted to, so that both can be compared.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstring>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "tests/text/fake_tokenizer_model.h"

namespace espalier::testing {

// Protocol Buffers, of which one field after the other is taken.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view message) : rest_(message) {}

  bool Next() {
    if (rest_.empty()) return false;
    const uint64_t key = TakeVarint();
    number = static_cast<int>(key >> 3);
    const int type = static_cast<int>(key & 7);
    CHECK(type == 0 || type == 1 || type == 2 || type == 5) << type;
    if (type == 0) {
      value = TakeVarint();
    } else {
      Take(type == 2 ? TakeVarint() : type == 1 ? 8 : 4);
    }
    return true;
  }

  int number = 0;
  uint64_t value = 0;
  std::string_view bytes;

 private:
  uint64_t TakeVarint() {
    uint64_t varint = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      varint |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return varint;
    }
  }
  void Take(size_t size) {
    bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
  }

  std::string_view rest_;
};

inline json::object AddedTokenOf(int id, const std::string& piece,
                                 bool is_special) {
  return {{"id", id},
          {"content", piece},
          {"special", is_special},
          {"normalized", false}};
}

// Converts a model without normalization rules that drops spaces and falls back
// to bytes.
inline std::string SentencePieceAsJson(std::string_view model) {
  json::array vocab, added;
  for (ProtoReader fields(model); fields.Next();) {
    if (fields.number != 1) continue;
    std::string piece;
    float score = 0;
    auto type = PieceType::kNormal;
    for (ProtoReader entry(fields.bytes); entry.Next();) {
      if (entry.number == 1) piece = entry.bytes;
      if (entry.number == 2) std::memcpy(&score, entry.bytes.data(), 4);
      if (entry.number == 3) type = static_cast<PieceType>(entry.value);
    }
    const int id = static_cast<int>(vocab.size());
    const bool is_special =
        type == PieceType::kControl || type == PieceType::kUnknown;
    if (is_special || type == PieceType::kUserDefined) {
      added.push_back(AddedTokenOf(id, piece, is_special));
    }
    // Byte pieces do not match their spelling in SentencePiece, but may in a
    // tokenizer.json.
    vocab.push_back(json::array{piece, type == PieceType::kByte
                                           ? -1000.0
                                           : static_cast<double>(score)});
  }
  return json::serialize(json::object{
      {"added_tokens", added},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         {{{"type", "Replace"},
           {"pattern", {{"Regex", "^ +| +\\z"}}},
           {"content", ""}},
          {{"type", "Replace"},
           {"pattern", {{"Regex", " {2,}"}}},
           {"content", " "}}}}}},
      {"pre_tokenizer",
       {{"type", "Metaspace"},
        {"replacement", "\u2581"},
        {"prepend_scheme", "always"},
        {"split", false}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"},
           {"pattern", {{"String", "\u2581"}}},
           {"content", " "}},
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "Unigram"},
        {"unk_id", 0},
        {"byte_fallback", true},
        {"vocab", vocab}}}});
}

}  // namespace espalier::testing

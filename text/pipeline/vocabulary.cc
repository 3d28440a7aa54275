#include "text/pipeline/vocabulary.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/json.h"
#include "base/status.h"

namespace espalier {

PieceIndex::PieceIndex(size_t num_pieces)
    : slots_(std::bit_ceil(2 * num_pieces + 2)), mask_(slots_.size() - 1) {}

void PieceIndex::Add(std::string_view piece, TokenId id) {
  const uint64_t hash = HashOf(piece);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  size_t slot = hash & mask_;
  while (slots_[slot].id >= 0 &&
         (slots_[slot].tag != tag || slots_[slot].piece != piece)) {
    slot = (slot + 1) & mask_;
  }
  slots_[slot] = {piece, tag, id};
}

absl::StatusOr<Vocabulary> Vocabulary::Create(
    std::vector<std::pair<std::string, TokenId>> entries) {
  Vocabulary vocabulary;
  TokenId size = 0;
  for (const auto& [piece, id] : entries) {
    if (id < 0 || id >= kMaxTokens) {
      return InvalidArgument("id ", id, " of ", ShownInQuotes(piece),
                             " is outside of [0, ", kMaxTokens, ")");
    }
    size = std::max(size, id + 1);
  }
  vocabulary.pieces_.resize(size);
  vocabulary.is_there_.resize(size);
  vocabulary.num_pieces_ = entries.size();
  std::vector<TokenId> ids;
  ids.reserve(entries.size());
  for (auto& [piece, id] : entries) {
    if (vocabulary.is_there_[id]) {
      return InvalidArgument("id ", id, " is that of ",
                             ShownInQuotes(vocabulary.pieces_[id]), " and of ",
                             ShownInQuotes(piece));
    }
    vocabulary.is_there_[id] = true;
    vocabulary.pieces_[id] = std::move(piece);
    ids.push_back(id);
  }
  vocabulary.index_ = PieceIndex(ids.size());
  for (const TokenId id : ids)
    vocabulary.index_.Add(vocabulary.pieces_[id], id);
  return vocabulary;
}

absl::StatusOr<Vocabulary> Vocabulary::Read(const json::object& object,
                                            const std::string& place) {
  std::vector<std::pair<std::string, TokenId>> entries;
  entries.reserve(object.size());
  for (const auto& [key, value] : object) {
    const std::string_view piece(key.data(), key.size());
    const bool is_id = value.is_int64() && value.get_int64() >= 0 &&
                       value.get_int64() < kMaxTokens;
    if (!is_id) {
      return InvalidArgument(place, "[", ShownInQuotes(piece),
                             "] must be an id in [0, ", kMaxTokens, "), got ",
                             Shown(&value));
    }
    entries.emplace_back(piece, static_cast<TokenId>(value.get_int64()));
  }
  if (entries.empty()) {
    return InvalidArgument(place, " must be an object with entries, got {}");
  }
  absl::StatusOr<Vocabulary> vocabulary = Create(std::move(entries));
  if (!vocabulary.ok()) return Annotate(vocabulary.status(), place);
  return vocabulary;
}

}  // namespace espalier

// PieceCache: the tokens of recent pieces. A direct-mapped table: a new piece
// replaces the one in its slot. The words of a language are few, and most
// recur.
//
// A slot is one cache line: pieces of up to 30 bytes and 8 tokens.
//
// Thread safety: none; each thread has its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/pipeline/vocabulary.h"

namespace espalier {

class PieceCache {
 public:
  static constexpr size_t kMaxPieceBytes = 30;
  static constexpr size_t kMaxTokens = 8;

  PieceCache() : slots_(kNumSlots) {}

  // Returns true and appends the tokens if `piece` is cached.
  bool Find(std::string_view piece, std::vector<TokenId>* tokens) const {
    if (piece.size() > kMaxPieceBytes) return false;
    const Slot& slot = slots_[HashOf(piece) % kNumSlots];
    if (std::string_view(slot.bytes, slot.num_bytes) != piece) return false;
    tokens->insert(tokens->end(), slot.tokens, slot.tokens + slot.num_tokens);
    return true;
  }

  // Caches the tokens of `piece`, which is not empty, if they fit.
  void Keep(std::string_view piece, std::span<const TokenId> tokens) {
    if (piece.size() > kMaxPieceBytes || tokens.size() > kMaxTokens) return;
    Slot& slot = slots_[HashOf(piece) % kNumSlots];
    slot.num_bytes = static_cast<uint8_t>(piece.size());
    slot.num_tokens = static_cast<uint8_t>(tokens.size());
    std::memcpy(slot.bytes, piece.data(), piece.size());
    std::ranges::copy(tokens, slot.tokens);  // there may be none
  }

 private:
  static constexpr size_t kNumSlots = 16384;  // 1 MiB

  struct alignas(64) Slot {
    uint8_t num_bytes = 0;  // 0 if it is empty
    uint8_t num_tokens = 0;
    char bytes[kMaxPieceBytes];
    TokenId tokens[kMaxTokens];
  };
  static_assert(sizeof(Slot) == 64);

  std::vector<Slot> slots_;
};

}  // namespace espalier

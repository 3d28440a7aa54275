// Vocabulary: the pieces of a model by their ids, and back. And PieceIndex, a
// table from strings to ids that holds no strings of its own.
//
// Thread safety: constant once filled; any thread may then read.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/hash.h"
#include "base/ids.h"

namespace espalier {

class PieceIndex {
 public:
  // For `num_pieces` at most, in one allocation.
  explicit PieceIndex(size_t num_pieces = 0);

  // The id of `piece`; a later Add of the same piece replaces an earlier one.
  // The bytes must stay where they are.
  void Add(std::string_view piece, TokenId id);

  std::optional<TokenId> Find(std::string_view piece) const {
    const uint64_t hash = HashOf(piece);
    for (size_t slot = hash & mask_;; slot = (slot + 1) & mask_) {
      const Slot& found = slots_[slot];
      if (found.id < 0) return std::nullopt;
      if (found.tag == static_cast<uint32_t>(hash >> 32) &&
          found.piece == piece) {
        return found.id;
      }
    }
  }

 private:
  struct Slot {
    std::string_view piece;
    uint32_t tag = 0;
    TokenId id = -1;
  };
  std::vector<Slot> slots_;  // a power of two, half of them empty
  size_t mask_;
};

class Vocabulary {
 public:
  // Larger ids are refused: a table by id would take too much.
  static constexpr TokenId kMaxTokens = 1 << 22;

  // Entries in any order; of two with one piece the later counts for Find.
  // Errors: kInvalidArgument naming an id that is used twice or is outside of
  // [0, kMaxTokens).
  static absl::StatusOr<Vocabulary> Create(
      std::vector<std::pair<std::string, TokenId>> entries);

  // {"piece": id, ...} at `place`, of a file.
  // Errors: kInvalidArgument naming the place and the entry; as Create.
  static absl::StatusOr<Vocabulary> Read(const boost::json::object& entries,
                                         const std::string& place);

  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  std::optional<TokenId> Find(std::string_view piece) const {
    return index_.Find(piece);
  }
  bool Has(TokenId id) const { return id >= 0 && id < size() && is_there_[id]; }
  // Empty if there is none.
  std::string_view Piece(TokenId id) const {
    return Has(id) ? std::string_view(pieces_[id]) : std::string_view();
  }
  // One more than the largest id.
  TokenId size() const { return static_cast<TokenId>(pieces_.size()); }
  size_t num_pieces() const { return num_pieces_; }

 private:
  Vocabulary() = default;

  std::vector<std::string> pieces_;  // by id
  std::vector<bool> is_there_;
  size_t num_pieces_ = 0;
  PieceIndex index_;
};

}  // namespace espalier

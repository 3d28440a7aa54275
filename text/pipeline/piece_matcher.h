// PieceMatcher: finds the longest of a set of pieces at a position of a text.
// For added and special tokens, of which a vocabulary may have a million.
//
// The pieces are sorted, and a look-up narrows the range byte by byte. A
// position where no piece begins costs one table look-up; any other costs a
// binary search per byte of the longest piece with a common prefix.
//
// Thread safety: constant after construction; any thread may read.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace espalier {

class PieceMatcher {
 public:
  struct Match {
    TokenId token;
    size_t size;  // bytes
  };

  PieceMatcher() = default;
  // REQUIRES: no piece is empty, and no two are equal.
  explicit PieceMatcher(std::vector<std::pair<std::string, TokenId>> pieces);

  // The longest piece that text.substr(begin) begins with.
  // REQUIRES: begin < text.size().
  std::optional<Match> At(std::string_view text, size_t begin) const {
    const auto lead = static_cast<uint8_t>(text[begin]);
    if (begins_[lead] == begins_[lead + 1]) return std::nullopt;
    return Find(text.substr(begin), lead);
  }

 private:
  std::optional<Match> Find(std::string_view text, uint8_t lead) const;

  std::vector<std::pair<std::string, TokenId>> pieces_;  // ascending by bytes
  // Pieces with first byte b are pieces_[begins_[b] .. begins_[b + 1]).
  std::array<uint32_t, 257> begins_ = {};
};

}  // namespace espalier

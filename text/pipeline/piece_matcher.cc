#include "text/pipeline/piece_matcher.h"

#include <algorithm>
#include <iterator>

namespace espalier {
namespace {

uint8_t ByteAt(const std::pair<std::string, TokenId>& piece, size_t idx) {
  return static_cast<uint8_t>(piece.first[idx]);
}

}  // namespace

PieceMatcher::PieceMatcher(std::vector<std::pair<std::string, TokenId>> pieces)
    : pieces_(std::move(pieces)) {
  std::ranges::sort(pieces_);
  for (const auto& piece : pieces_) ++begins_[ByteAt(piece, 0) + 1];
  for (size_t lead = 1; lead < begins_.size(); ++lead) {
    begins_[lead] += begins_[lead - 1];
  }
}

std::optional<PieceMatcher::Match> PieceMatcher::Find(std::string_view text,
                                                      uint8_t lead) const {
  auto first = pieces_.begin() + begins_[lead];
  auto last = pieces_.begin() + begins_[lead + 1];
  std::optional<Match> longest;
  // All of [first, last) begin with the first `size` bytes of the text; one
  // that is no longer comes first.
  for (size_t size = 1; first != last; ++size) {
    if (first->first.size() == size) {
      longest = Match{first->second, size};
      ++first;
    }
    if (size == text.size()) break;
    const auto byte = static_cast<uint8_t>(text[size]);
    // If all pieces in the range share this byte, it does not shrink.
    if (first != last && ByteAt(*first, size) == byte &&
        ByteAt(*std::prev(last), size) == byte) {
      continue;
    }
    first = std::partition_point(first, last, [&](const auto& piece) {
      return ByteAt(piece, size) < byte;
    });
    last = std::partition_point(first, last, [&](const auto& piece) {
      return ByteAt(piece, size) == byte;
    });
  }
  return longest;
}

}  // namespace espalier

#include "constrain/token_suffixes.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace espalier {
namespace {

// The tokens backwards, ascending, each once.
std::vector<std::string> Reversed(std::span<const std::string> bytes) {
  constexpr size_t kMaxTokenBytes = std::numeric_limits<uint16_t>::max();
  std::vector<std::string> reversed;
  for (const std::string& token : bytes) {
    if (token.empty() || token.size() > kMaxTokenBytes) continue;
    reversed.emplace_back(token.rbegin(), token.rend());
  }
  std::ranges::sort(reversed);
  reversed.erase(std::unique(reversed.begin(), reversed.end()), reversed.end());
  return reversed;
}

}  // namespace

// Punctuation separates the parts of most languages, so each character of it
// has a bit of its own; a letter shares one with its capital.
uint64_t TokenSuffixes::BitOf(uint8_t byte) {
  if (byte >= 0xC0) return uint64_t{1} << 63;
  if (byte >= 0x80) return uint64_t{1} << 62;
  if (byte < ' ' || byte == 0x7F) return uint64_t{1} << 61;
  if (byte >= '0' && byte <= '9') return uint64_t{1} << 60;
  const int lower = byte | 0x20;
  if (lower >= 'a' && lower <= 'z') return uint64_t{1} << (lower - 'a');
  // ' ' to '/', ':' to '@', '[' to '`', '{' to '~': 33 characters.
  const int base = byte <= '/'   ? ' '
                   : byte <= '@' ? ':' - 16
                   : byte <= '`' ? '[' - 23
                                 : '{' - 29;
  return uint64_t{1} << (26 + byte - base);
}

TokenSuffixes::TokenSuffixes(std::span<const std::string> bytes) {
  std::vector<uint32_t> path;  // nodes of the last token
  std::string_view last;
  const auto close = [&](size_t depth) {
    while (path.size() > depth) {
      const uint32_t child = path.back();
      path.pop_back();
      Node& node = nodes_[child];
      node.subtree_end = static_cast<uint32_t>(nodes_.size());
      if (path.empty()) continue;
      Bits& bits = bits_below_[path.back()];
      bits.all |= bits_below_[child].all | BitOf(node.byte);
      bits.first |= bits_below_[child].first;
      if (node.is_token) bits.first |= BitOf(node.byte);
    }
  };
  const std::vector<std::string> reversed = Reversed(bytes);
  for (const std::string& token : reversed) {
    const size_t num_common =
        std::ranges::mismatch(token, last).in1 - token.begin();
    close(num_common);
    for (size_t depth = num_common; depth < token.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.subtree_end = 0,
                        .depth = static_cast<uint16_t>(depth),
                        .byte = static_cast<uint8_t>(token[depth]),
                        .is_token = depth + 1 == token.size()});
      bits_below_.emplace_back();
    }
    for (size_t depth = 0; depth + 1 + kHigh < token.size(); ++depth) {
      bits_below_[path[depth]].all |= kHighBit;
    }
    max_depth_ = std::max(max_depth_, static_cast<int>(token.size()));
    last = token;
  }
  close(0);
}

}  // namespace espalier

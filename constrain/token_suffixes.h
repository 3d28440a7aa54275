// TokenSuffixes: the tokens of a vocabulary by their bytes from the last to the
// first, as a trie in depth-first order. A walk against the transitions of an
// automaton finds the states from which a token leads to given ones.
//
// Thread safety: constant after construction; any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace espalier {

class TokenSuffixes {
 public:
  struct Node {
    uint32_t subtree_end;  // index of the first node outside of its subtree
    uint16_t depth;        // bytes of the token after this one
    uint8_t byte;
    bool is_token;  // the bytes from this one on are a token
  };

  // `bytes` as for TokenTrie (constrain/token_trie.h).
  explicit TokenSuffixes(std::span<const std::string> bytes);

  // Depth first, smaller bytes first.
  std::span<const Node> nodes() const { return nodes_; }
  // Bits (BitOf) of bytes in the subtree of a node, without its own.
  struct Bits {
    uint64_t all = 0;    // with kHighBit if a path has more than kHigh bytes
    uint64_t first = 0;  // first bytes of its tokens
  };
  static constexpr int kHigh = 16;
  static constexpr uint64_t kHighBit = uint64_t{1} << 59;  // no byte has it
  const Bits& bits_below(size_t node) const { return bits_below_[node]; }
  int max_depth() const { return max_depth_; }

  // Returns the one bit that stands for a byte, and for others like it.
  static uint64_t BitOf(uint8_t byte);

  int64_t num_bytes() const {
    return static_cast<int64_t>(nodes_.size() * (sizeof(Node) + sizeof(Bits)));
  }

 private:
  std::vector<Node> nodes_;
  std::vector<Bits> bits_below_;  // [nodes]
  int max_depth_ = 0;             // bytes of the longest token
};

}  // namespace espalier

// TokenTrie: the tokens of a vocabulary by the bytes that they add to a text,
// as a trie in depth-first order. A walk along an automaton finds the legal
// tokens of a state, and skips all tokens with a beginning that is illegal.
//
// Thread safety: constant after construction; any thread may read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/constraint_tables.h"
#include "base/ids.h"
#include "constrain/byte_automaton.h"

namespace espalier {

class TokenTrie {
 public:
  // `bytes[t]` is what token t adds to a text. A token that adds nothing, such
  // as EOS, is never legal. One of more than 65,535 bytes counts as such.
  explicit TokenTrie(std::span<const std::string> bytes);

  int vocab_size() const { return static_cast<int>(indptr_.size()) - 1; }
  // REQUIRES: `token` is in [0, vocab_size()).
  std::string_view BytesOf(TokenId token) const {
    return std::string_view(text_).substr(indptr_[token],
                                          indptr_[token + 1] - indptr_[token]);
  }
  // Returns what BytesOf returns for all tokens. Valid as long as the trie.
  TokenTexts texts() const {
    return {indptr_.data(), reinterpret_cast<const uint8_t*>(text_.data())};
  }
  // True if each byte is a token.
  bool has_all_bytes() const { return has_all_bytes_; }
  // Bytes of the texts and of the trie.
  int64_t num_bytes() const;

  // Calls visit(token, state) for each token whose bytes lead from `state` to a
  // state, in the order of the trie.
  template <typename Visit>
  void ForEachLegal(const ByteAutomaton& automaton, ByteAutomaton::State state,
                    const Visit& visit) const {
    ForEachLegalBy([&](ByteAutomaton::State from,
                       uint8_t byte) { return automaton.Next(from, byte); },
                   state, visit);
  }
  // As above, with the state after a byte as next(state, byte) returns it;
  // negative: there is none.
  template <typename Next, typename Visit>
  void ForEachLegalBy(const Next& next_of, int32_t state,
                      const Visit& visit) const {
    // States before each byte of the node's path.
    std::vector<int32_t> path(max_depth_ + 1);
    path[0] = state;
    for (size_t i = 0; i < nodes_.size();) {
      const Node& node = nodes_[i];
      const int32_t next = next_of(path[node.depth], node.byte);
      if (next < 0) {
        i = node.subtree_end;
        continue;
      }
      path[node.depth + 1] = next;
      ++i;
      const uint32_t end = i < nodes_.size()
                               ? nodes_[i].first_token
                               : static_cast<uint32_t>(tokens_.size());
      for (uint32_t t = node.first_token; t < end; ++t) {
        visit(tokens_[t], next);
      }
    }
  }

 private:
  struct Node {
    uint32_t first_token;  // first of its own tokens in tokens_
    uint32_t subtree_end;  // index of the first node outside of its subtree
    uint16_t depth;        // bytes before this one
    uint8_t byte;
  };

  std::string text_;             // the bytes of one token after the other
  std::vector<int32_t> indptr_;  // [vocab_size + 1]
  std::vector<TokenId> tokens_;  // sorted by their bytes, then by id
  std::vector<Node> nodes_;      // depth first, smaller bytes first
  size_t max_depth_ = 0;
  bool has_all_bytes_ = false;
};

// Sorts different tokens of a vocabulary.
void SortTokens(int vocab_size, std::vector<TokenId>* tokens);

}  // namespace espalier

// AllowedSequenceTrie: the sequences one of which a request's output must be,
// as a trie. A live beam stands on a node; only the node's tokens may follow
// it, and it moves to a child with each. Forking a beam copies a number.
//
// Nodes are numbered level by level, and the children of a node by ascending
// token; so the children of all nodes lie one after the other, and a node needs
// three numbers: the token that leads to it, where its children begin, and how
// many of them are leaves. The tokens of a node's children are a piece of
// the array of all tokens, which selection gets as it is.
//
//   {5, 7}, {5, 8, 2}, {9}:    node   0 1 2 3 4 5
//                              token  - 5 9 7 8 2
//                              first child of 0: 1; of 1: 3; of 4: 5
//
// 100,000 sequences of 4 tokens are 306,000 nodes of 13 bytes, and are built in
// 32 ms, on one core of a busy AMD EPYC (allowed_sequences_benchmark).
//
// Thread safety: constant after construction.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "request/generation_params.h"

namespace espalier {

class AllowedSequenceTrie {
 public:
  using Node = int32_t;
  static constexpr Node kRoot = 0;
  static constexpr Node kNone = -1;

  // Null if the request allows everything. Sequences that min_new_tokens rules
  // out, because they end, or come to an id that ends them, too early, are left
  // out. `params` as ValidateParams leaves them.
  static std::shared_ptr<const AllowedSequenceTrie> Make(
      const GenerationParams& params);

  // Equal sequences are one; empty ones are none.
  explicit AllowedSequenceTrie(
      std::span<const std::vector<int64_t>* const> sequences);

  // The tokens that may follow, ascending.
  std::span<const TokenId> Next(Node node) const {
    return std::span(tokens_).subspan(first_child_[node], num_children(node));
  }
  // Where `token` leads; kNone if it may not follow.
  Node Child(Node node, TokenId token) const;

  int num_children(Node node) const {
    return first_child_[node + 1] - first_child_[node];
  }
  // Children that nothing may follow.
  int num_leaf_children(Node node) const { return num_leaf_children_[node]; }
  // Whether a sequence ends here. Something may follow all the same, if it is
  // the beginning of another.
  bool is_end(Node node) const { return is_end_[node] != 0; }
  // The token that leads to it. REQUIRES: not the root.
  TokenId token(Node node) const { return tokens_[node]; }
  // Children are [first_child(node), first_child(node) + num_children(node)).
  Node first_child(Node node) const { return first_child_[node]; }
  int num_nodes() const { return static_cast<int>(tokens_.size()); }
  // Different ones.
  int num_sequences() const { return num_sequences_; }

 private:
  // All [num_nodes], first_child_ one more.
  std::vector<TokenId> tokens_;
  std::vector<Node> first_child_;
  std::vector<int32_t> num_leaf_children_;
  std::vector<uint8_t> is_end_;
  int num_sequences_ = 0;
};

}  // namespace espalier

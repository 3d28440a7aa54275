// SequenceTrie: a trie of token sequences, and the constraint to one of them. A
// state is a node. Only the node's tokens may follow it, and each token leads
// to a child.
//
// Sequences are no longer than the requests allow (ValidateParams), so all of
// them have room.
//
// Nodes are numbered level by level, and the children of a node by ascending
// token, so the children of all nodes are adjacent. A node needs three numbers:
// the token that leads to it, its first child, and the number of its leaf
// children. The tokens of a node's children are a slice of the array of all
// tokens, which selection reads in place.
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
#include <span>
#include <vector>

#include "base/ids.h"
#include "constrain/constraint.h"

namespace espalier {

class SequenceTrie final : public Constraint {
 public:
  using Node = State;
  static constexpr Node kRoot = 0;

  // Builds the trie; drops duplicates and empty sequences.
  explicit SequenceTrie(std::span<const std::vector<int64_t>* const> sequences);

  // Returns the tokens that may follow, ascending.
  std::span<const TokenId> Next(Node node) const {
    return std::span(tokens_).subspan(first_child_[node], num_children(node));
  }
  // Returns the child for `token`, or kNone if it may not follow.
  Node Child(Node node, TokenId token) const;

  int num_children(Node node) const {
    return first_child_[node + 1] - first_child_[node];
  }
  // Returns the number of children without children.
  int num_leaf_children(Node node) const { return num_leaf_children_[node]; }
  // True if a sequence ends here. It may also be a prefix of another one.
  bool is_end(Node node) const { return is_end_[node] != 0; }
  // Returns the token that leads to the node. REQUIRES: not the root.
  TokenId token(Node node) const { return tokens_[node]; }
  // Children are [first_child(node), first_child(node) + num_children(node)).
  Node first_child(Node node) const { return first_child_[node]; }
  int num_nodes() const { return static_cast<int>(tokens_.size()); }
  // Number of distinct sequences.
  int num_sequences() const { return num_sequences_; }

  State start() const override { return kRoot; }
  State Advance(State state, TokenId token) const override {
    return Child(state, token);
  }
  Legal LegalTokens(State state, int32_t) const override {
    return {Next(state), num_leaf_children(state)};
  }
  bool accepts(State state, int32_t) const override { return is_end(state); }
  bool ends(State state, int32_t) const override {
    return num_children(state) == 0;
  }
  // Different sequences of one length begin different sequences of the trie.
  int64_t MaxLegal(int64_t) const override { return num_sequences_; }
  int64_t MaxLast(int64_t) const override { return num_sequences_; }

 private:
  // All [num_nodes], but first_child_ [num_nodes + 1].
  std::vector<TokenId> tokens_;
  std::vector<Node> first_child_;
  std::vector<int32_t> num_leaf_children_;
  std::vector<uint8_t> is_end_;
  int num_sequences_ = 0;
};

}  // namespace espalier

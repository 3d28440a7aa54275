// TokenTree: every hypothesis and every live beam of a group as a path in one
// append-only tree of back pointers. Forking is free, nothing is copied or
// moved, and a pruned beam simply stops growing.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace espalier {

class TokenTree {
 public:
  // A node of the tree, or the root: the empty path.
  using Node = int32_t;
  static constexpr Node kRoot = -1;

  // Adds a node for `token` after `parent`.
  Node Append(Node parent, TokenId token) {
    // Does not read the end of a growing path: with many trees that grow in
    // turn, the read would miss the cache.
    if (parent != num_nodes_ - 1) {
      CHECK(parent >= kRoot && parent < num_nodes_) << "no node " << parent;
      last_depth_ = depth(parent);
    }
    nodes_.push_back({parent, token, ++last_depth_});
    return num_nodes_++;
  }

  TokenId token(Node node) const { return nodes_[node].token; }
  Node parent(Node node) const { return nodes_[node].parent; }
  // Tokens on the path to `node`.
  int depth(Node node) const { return node == kRoot ? 0 : nodes_[node].depth; }
  int num_nodes() const { return num_nodes_; }

  // Returns the tokens from the root to `node`, inclusive.
  std::vector<TokenId> Path(Node node) const;
  // As Path, but appends to `*tokens`.
  void AppendPath(Node node, std::vector<TokenId>* tokens) const;

 private:
  struct Entry {
    Node parent;
    TokenId token;
    int depth;  // tokens on its path
  };
  // Blocks: a growing tree copies nothing, and the ends of many trees that grow
  // together share few pages of memory.
  std::deque<Entry> nodes_;
  int num_nodes_ = 0;   // nodes_.size(), which needs a division
  int last_depth_ = 0;  // depth of the last node
};

}  // namespace espalier

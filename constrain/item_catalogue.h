// ItemCatalogue: a set of token sequences, the items of a catalogue, as a trie.
// Items may be of any lengths, and prefixes of one another.
//
// Nodes are numbered level by level, and the children of a node by ascending
// token. So the children of a node are adjacent, the tokens that may follow it
// are a slice of the array of all tokens, and so are its descendants of one
// level:
//
//   {5, 7}, {5, 8, 2}, {9}:    node   0 1 2 3 4 5
//                              token  - 5 9 7 8 2
//                              inner  1 1 0 0 1 0    has children
//                              first  0 1 0 1 0 1    is its parent's first
//                              end    0 0 1 1 0 1    an item ends here
//
// The n-th inner node has the children from the n-th first one on. So a node
// takes 4 bytes and three bits, with their counts (rank_bits.h): 10^7 random
// items of four tokens of 13 bits are 29 million nodes, 13.7 bytes an item, and
// are built in 0.82 s, on one core of a busy Intel Xeon (items_benchmark).
// Counts of items below a node, level by level, need no further memory.
//
// Thread safety: constant after construction, or as if; any thread may read.
// Source: Jacobson 1989, Space-efficient static trees and graphs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/ids.h"
#include "base/item_tables.h"
#include "base/item_trie_arrays.h"
#include "constrain/item_trie_builder.h"
#include "constrain/rank_bits.h"

namespace espalier {

class ItemCatalogue {
 public:
  using Node = ItemTrie::Node;
  static constexpr Node kRoot = 0;
  static constexpr Node kNone = ItemTrie::kNone;
  // Tokens of all items of a catalogue.
  static constexpr int64_t kMaxTokens = ItemTrieArrays::kMaxTokens;

  // Nodes [begin, end) of one level.
  using Range = ItemTrie::Range;

  // The items of one length that end by one of some tokens: a bit for each node
  // of their level.
  class EndedItems {
   public:
    // Valid as long as this object.
    ItemLevelEnds view() const { return {level_, bits_.view()}; }
    // Returns the number of these items that end in a range.
    int64_t NumEnds(Range range) const { return view().NumEnds(range); }

   private:
    friend class ItemCatalogue;

    Range level_;
    RankBits bits_;
  };

  // Drops duplicates and empty lists.
  // REQUIRES: at most kMaxTokens tokens, none negative.
  explicit ItemCatalogue(const TokenLists& items)
      : ItemCatalogue(BuildItemTrie(items)) {}
  explicit ItemCatalogue(ItemTrieArrays arrays);

  // The arrays. Valid as long as this object.
  ItemTrie trie() const {
    return {.num_nodes = static_cast<Node>(tokens_.size()),
            .tokens = tokens_.data(),
            .inner = inner_.view(),
            .first = first_.view(),
            .ends = ends_.view(),
            .max_token = max_token_,
            .max_length = max_length(),
            .min_leaf_length = min_leaf_length_,
            .level_begins = level_begins_.data()};
  }
  int64_t num_nodes() const { return std::ssize(tokens_); }
  // Distinct ones.
  int64_t num_items() const { return ends_.num_ones(); }
  // Tokens of the longest item, and of the shortest one that begins no other; 0
  // if there is none.
  int32_t max_length() const {
    return static_cast<int32_t>(level_begins_.size()) - 2;
  }
  int32_t min_leaf_length() const { return min_leaf_length_; }
  // The largest token; -1 if there is none.
  TokenId max_token() const { return max_token_; }

  // Returns the tokens that may follow, ascending.
  std::span<const TokenId> Next(Node node) const {
    return TokensOf(Children(node));
  }
  // Returns the tokens that lead to the nodes of a range.
  std::span<const TokenId> TokensOf(Range range) const {
    return std::span(tokens_).subspan(range.begin, range.size());
  }
  // Returns the child for `token`, or kNone if it may not follow.
  Node Child(Node node, TokenId token) const {
    return trie().Child(node, token);
  }
  // Returns the node of a sequence; kNone if no item begins with it.
  Node Find(std::span<const TokenId> sequence) const;

  Range Children(Node node) const { return trie().Children(node); }
  // Returns the children of all nodes of a range.
  Range Below(Range range) const { return trie().Below(range); }
  // Returns the number of items that end in a range.
  int64_t NumEnds(Range range) const { return trie().NumEnds(range); }
  // Returns the number of nodes without children in a range.
  int32_t NumLeaves(Range range) const {
    return range.size() - static_cast<int32_t>(inner_.Rank(range.end) -
                                               inner_.Rank(range.begin));
  }

  bool has_children(Node node) const { return inner_[node]; }
  // True if an item ends here. It may also begin another one.
  bool is_end(Node node) const { return ends_[node]; }
  // Returns the token that leads to the node. REQUIRES: not the root.
  TokenId token(Node node) const { return tokens_[node]; }
  // Returns the tokens that lead to the node.
  std::vector<TokenId> PathTo(Node node) const;
  // Returns the number of tokens that lead to the node.
  int32_t LevelOf(Node node) const { return trie().LevelOf(node); }
  // True if an item has the token before its last one.
  bool has_before_last(TokenId token) const {
    return token < std::ssize(before_last_) && before_last_[token];
  }
  // Returns an item that has the token before its last one. Reads up to all
  // nodes. REQUIRES: has_before_last(token).
  std::vector<TokenId> ItemWithBeforeLast(TokenId token) const;

  // Upper bounds for any `num_nodes` nodes of one level: of their children, and
  // of the items that end in these, on levels where not every child is a leaf.
  int64_t MaxChildren(int64_t num_nodes) const;
  int64_t MaxEnds(int64_t num_nodes) const;

  // Returns the items of `length` tokens that end by one of `tokens`, which are
  // ascending; null if there are none. Reads all nodes of their level unless it
  // did so for one of the latest few calls with other arguments.
  std::shared_ptr<const EndedItems> EndedBy(std::span<const TokenId> tokens,
                                            int32_t length) const;

  // The memory that it takes, but for EndedItems.
  int64_t num_bytes() const;

 private:
  // Nodes by the number of their children, or of the items that end in these:
  using Numbers = ItemTrieArrays::Numbers;
  // Counted for the parents of a level's nodes.
  struct Level {
    Numbers num_children = {};
    Numbers num_ends = {};  // empty if all nodes of the level are leaves
  };

  std::vector<TokenId> tokens_;  // [num_nodes]
  RankBits inner_;               // [num_nodes]
  RankBits first_;               // [num_nodes]
  RankBits ends_;                // [num_nodes]
  // [max_length + 2]  by length; the last is the end of the nodes.
  std::vector<Node> level_begins_;
  std::vector<Level> levels_;  // [max_length + 1]
  std::vector<bool> before_last_;
  struct Ended {
    std::vector<TokenId> tokens;
    int32_t length;
    std::shared_ptr<const EndedItems> items;
  };
  // Latest results of EndedBy, the newest last.
  struct LatestEnded {
    std::mutex mutex;
    std::vector<Ended> all ABSL_GUARDED_BY(mutex);
  };
  std::unique_ptr<LatestEnded> ended_ = std::make_unique<LatestEnded>();
  int32_t min_leaf_length_ = 0;
  TokenId max_token_ = -1;
};

}  // namespace espalier

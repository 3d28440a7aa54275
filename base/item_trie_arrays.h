// ItemTrieArrays: the trie of a catalogue as it is built, of which an
// ItemCatalogue is made (constrain/item_catalogue.h, which says how nodes are
// numbered).
//
// A value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/item_tables.h"

namespace espalier {

struct ItemTrieArrays {
  // Tokens of all items, so that there is a number for each node.
  static constexpr int64_t kMaxTokens = (int64_t{1} << 31) - 2;

  using Bits = std::vector<uint64_t>;  // bit i is bit i % 64 of word i / 64
  static size_t NumWords(int64_t num_nodes) {
    return static_cast<size_t>(num_nodes) / 64 + 1;
  }
  // {number, how often it comes}, descending, without 0.
  using Numbers = std::vector<std::pair<int32_t, int32_t>>;
  struct Level {
    ItemTrie::Node num_nodes = 0;
    // For each node above that has children: how many they are, and at how many
    // of these an item ends.
    Numbers num_children = {};
    Numbers num_ends = {};
    friend bool operator==(const Level&, const Level&) = default;
  };

  std::vector<TokenId> tokens;    // [num_nodes]  that lead to each; 0: the root
  Bits inner;                     // [NumWords]  has children
  Bits first;                     // [NumWords]  is its parent's first child
  Bits ends;                      // [NumWords]  an item ends here
  std::vector<Level> levels;      // [max_length + 1]  by length
  std::vector<bool> before_last;  // [max_token + 1]  of an inner node
  friend bool operator==(const ItemTrieArrays&,
                         const ItemTrieArrays&) = default;
};

}  // namespace espalier

// BuildItemTrie: sorts the items of a catalogue and numbers the nodes of their
// trie (constrain/item_catalogue.h says how). A GPU builds equal arrays
// (kernels/constrain/cuda_item_trie_builder.h).
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/item_trie_arrays.h"

namespace espalier {

// Sequences in one array: the i-th is [ends[i - 1], ends[i]), with 0 before the
// first.
struct TokenLists {
  std::vector<TokenId> tokens;
  std::vector<uint32_t> ends;

  // Ends a list whose tokens were appended.
  void EndList() { ends.push_back(static_cast<uint32_t>(tokens.size())); }
  int64_t size() const { return std::ssize(ends); }
  std::span<const TokenId> operator[](int64_t i) const {
    const uint32_t begin = i == 0 ? 0 : ends[i - 1];
    return std::span(tokens).subspan(begin, ends[i] - begin);
  }
};

// Drops duplicates and empty lists. 10^7 items take about a second of one core.
// REQUIRES: at most ItemTrieArrays::kMaxTokens tokens, each at least 0 and
// below INT32_MAX.
ItemTrieArrays BuildItemTrie(const TokenLists& items);

// BuildItemTrie, or what does it elsewhere, equally.
using ItemTrieBuilder = std::function<ItemTrieArrays(const TokenLists& items)>;

}  // namespace espalier

// StablePrefix: the longest common prefix of all sequences of a search that may
// still be returned. It never shrinks, since sequences only grow, end or drop
// out; so it can be streamed while the search goes on.
//
//   live:      The cat sat     finished:  The cat </s>
//              The cat lay                            stable prefix: The cat
//
// Sequences are compared by their tokens, not by nodes of the strategy's tree:
// beams of different groups may have the same tokens. A trie counts at each
// place how many ways lead on. A place is counted when a first sequence comes
// to it and when the last one leaves, so an update costs O(sequences), however
// long they are.
//
// Belongs to its request's strand.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "beam/strategy/token_tree.h"

namespace espalier {

class StablePrefix {
 public:
  StablePrefix();

  // The sequences are now the paths of `tree` to `nodes`, each of which
  // continues, or is, one of before. Returns what the prefix grew by; nothing
  // if `nodes` is empty.
  std::vector<TokenId> Update(const TokenTree& tree,
                              std::span<const TokenTree::Node> nodes);

  // Whether every sequence is the prefix and no more.
  bool is_everything() const;

 private:
  static constexpr int kRoot = 0;
  static constexpr int kNone = -1;

  // A sequence of tokens that some path begins with, or began with.
  struct Place {
    int parent = kNone;
    TokenId token = 0;
    int num_uses = 0;   // sequences that end here, and children in use
    int child_xor = 0;  // of the children in use: the one, if it is one
  };

  int PlaceOf(const TokenTree& tree, TokenTree::Node node);
  int ChildOf(int parent, TokenId token);
  void Use(int place);
  void Leave(int place);

  std::vector<Place> places_;
  std::unordered_map<uint64_t, int> children_;  // by parent and token
  std::vector<int> place_of_;                   // by node; kNone: unset
  std::vector<int> ends_;                       // of the sequences
  int stable_ = kRoot;
};

}  // namespace espalier

// StablePrefix: the longest common prefix of all sequences of a search that may
// still be returned. It never shrinks, because sequences only grow, end or are
// pruned, so it can be streamed during the search.
//
//   live:      The cat sat     finished:  The cat </s>
//              The cat lay                            stable prefix: The cat
//
// Sequences are compared by their tokens, not by nodes of the strategy's tree,
// because beams of different groups may have equal tokens. A trie counts the
// uses of each place. A count changes when a first sequence reaches the place
// and when the last one leaves it, so an update costs O(sequences), whatever
// their length.
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

  // Sets the sequences to the paths of `tree` to `nodes`, each of which equals
  // or continues a previous one. Returns the tokens by which the prefix grew;
  // nothing if `nodes` is empty.
  std::vector<TokenId> Update(const TokenTree& tree,
                              std::span<const TokenTree::Node> nodes);

  // True if every sequence equals the prefix.
  bool is_everything() const;

 private:
  static constexpr int kRoot = 0;
  static constexpr int kNone = -1;

  // A sequence of tokens that is, or was, a prefix of some path.
  struct Place {
    int parent = kNone;
    TokenId token = 0;
    int num_uses = 0;   // sequences that end here, and children in use
    int child_xor = 0;  // XOR of children in use: the child, if there is one
  };

  int PlaceOf(const TokenTree& tree, TokenTree::Node node);
  int ChildOf(int parent, TokenId token);
  void Use(int place);
  void Leave(int place);

  std::vector<Place> places_;
  std::unordered_map<uint64_t, int> children_;  // by parent and token
  std::vector<int> place_of_;                   // by node; kNone: unset
  std::vector<int> ends_;                       // place of each sequence
  int stable_ = kRoot;
};

}  // namespace espalier

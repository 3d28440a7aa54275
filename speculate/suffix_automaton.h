// SuffixAutomaton: all substrings of a growing text, with what followed each
// and how often. Its states are classes of substrings that end at the same
// places; an edge leads from a class to that of its substrings with one more
// token; the link of a state is the class of the longest suffix that ends at
// more places (Blumer et al. 1985). It grows by a token in amortised O(1), to
// at most 2 states and 3 edges a token: some 100 bytes.
//
// An edge counts how often its token followed the substrings of its state when
// they were the longest ones that it had followed before, first times
// included: the counts of PPM with update exclusion (Moffat 1990). To count
// every time would cost a visit to all suffixes, of which a loop has as many as
// tokens.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "speculate/cow_array.h"

namespace espalier {

class SuffixAutomaton {
 public:
  using State = int32_t;
  static constexpr State kRoot = 0;  // the class of the empty substring

  SuffixAutomaton();

  void Append(TokenId token);

  // The class of the longest suffix of the text that occurs at another place,
  // too, be it one that overlaps it; the root if there is none.
  State repeated_suffix() const { return last_ == kRoot ? kRoot : link(last_); }
  // Tokens of its longest substring.
  int length(State state) const { return states_[state].length; }
  State link(State state) const { return states_[state].link; }

  // Whether its substrings were ever followed; only those at the very end were
  // not.
  bool has_next(State state) const { return states_[state].best_edge >= 0; }
  // The token that followed them most often, by the counts above; of those that
  // did so equally often, the one that was counted last.
  // REQUIRES: has_next(state).
  TokenId best_token(State state) const { return BestEdge(state).token; }
  // The class of its substrings with best_token. REQUIRES: has_next(state).
  State best_next(State state) const { return BestEdge(state).target; }

  // The most slots of its hash table that the search for an edge goes through,
  // of all that it has. A figure for tests: O(edges).
  size_t MaxProbes() const;

 private:
  struct Node {
    int32_t length = 0;
    State link = -1;
    int32_t first_edge = -1;  // of a list
    int32_t best_edge = -1;
  };
  struct Edge {
    State source = 0;
    TokenId token = 0;
    State target = 0;
    int32_t count = 0;
    int32_t next_edge = -1;  // in the list of its source
  };

  const Edge& BestEdge(State state) const {
    return edges_[states_[state].best_edge];
  }
  // -1 if there is none.
  int32_t FindEdge(State source, TokenId token) const;
  size_t SlotOf(State source, TokenId token) const;
  int32_t AddEdge(State source, TokenId token, State target, int32_t count);
  void GrowSlots();
  // Of its source: it is best unless another has been counted more often.
  void MakeBestIfSo(int32_t edge);
  // The suffixes of `state` with `token`, when they occurred before as a part
  // of `target`'s substrings: a class of their own.
  State Split(State state, TokenId token, State target);

  CowArray<Node> states_;
  CowArray<Edge> edges_;
  // Edges by source and token: open addressing, linear probing; 1 + edge, 0 is
  // empty. A power of two, at most half full.
  CowArray<int32_t> slots_;
  State last_ = kRoot;  // of the whole text
};

}  // namespace espalier

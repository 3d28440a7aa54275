// SuffixAutomaton: all substrings of a growing text, with counts of the tokens
// that followed each. A state is a class of substrings with the same end
// positions. An edge leads to the class of these substrings extended by one
// token. The link of a state is the class of its longest suffix with more end
// positions (Blumer et al. 1985). Appending a token takes amortised O(1) and
// adds at most 2 states and 3 edges, some 100 bytes.
//
// An edge counts how often its token followed the substrings of its state.
// Append counts the token in the longest context (suffix of the text) that it
// has followed before, and in all longer ones, where it is new, but in none
// that are shorter. These are the counts of PPM with update exclusion (Moffat
// 1990). Counting in the shorter ones too would visit each of them, and in a
// text that loops there are as many as tokens of the loop.
//
// Copies share memory until they are written to (cow_array.h).
//
// Thread safety: all copies belong to one strand.
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

  // Returns the class of the longest suffix of the text that also occurs
  // elsewhere, possibly overlapping it; the root if there is none.
  State repeated_suffix() const { return last_ == kRoot ? kRoot : link(last_); }
  // Number of tokens in its longest substring.
  int length(State state) const { return states_[state].length; }
  // Returns the link of `state`; -1 for the root.
  State link(State state) const { return states_[state].link; }

  // True if a token has followed its substrings, false if they occur only at
  // the end of the text.
  bool has_next(State state) const { return states_[state].best_edge >= 0; }
  // Returns the token that followed most often, by the counts above; the one
  // counted last wins ties.
  // REQUIRES: has_next(state).
  TokenId best_token(State state) const { return BestEdge(state).token; }
  // Returns the class of its substrings extended by best_token.
  // REQUIRES: has_next(state).
  State best_next(State state) const { return BestEdge(state).target; }

  // Returns the longest probe sequence of any edge in the hash table. Takes
  // O(edges); for tests.
  size_t MaxProbes() const;

 private:
  struct Node {
    int32_t length = 0;
    State link = -1;
    int32_t first_edge = -1;  // head of the list of its edges
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
  // Returns the edge, or -1.
  int32_t FindEdge(State source, TokenId token) const;
  size_t SlotOf(State source, TokenId token) const;
  int32_t AddEdge(State source, TokenId token, State target, int32_t count);
  void GrowSlots();
  // Makes `edge` its source's best edge unless another has a higher count.
  void MakeBestIfSo(int32_t edge);
  // Clones `target`: moves the suffixes of `state` extended by `token` from
  // `target` to a new class, and returns that.
  State Split(State state, TokenId token, State target);

  CowArray<Node> states_;
  CowArray<Edge> edges_;
  // Edges by source and token: open addressing, linear probing; 1 + edge, 0 is
  // empty. A power of two, at most half full.
  CowArray<int32_t> slots_;
  State last_ = kRoot;  // class of the whole text
};

}  // namespace espalier

// MinimizeDfa: finds the equal states of a deterministic automaton.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "constrain/dfa_edges.h"

namespace espalier {

// Sets of equal states. Two states are equal if and only if the same bytes lead
// from them to an accepting state.
struct DfaBlocks {
  std::vector<int32_t> block_of = {};  // [num_states]  number of a block, or -1
  std::vector<int32_t> members = {};   // [num_blocks]  a state of each
};

// Returns the blocks of the states in `order`, in no particular order.
//
//   dfa        edges are sorted by the state that they leave, then by class
//   first      [num_states + 1]  index of each state's first edge
//   distances  [num_states]      fewest bytes to an accepting state
//   order      states, by their distances; others have no edges
//   key        of the hashes in a first attempt
//
// Takes O(edges * log(states)) steps, most often O(edges), and 30 bytes an
// edge.
// Source of the refinement: Hopcroft, An n log n algorithm for minimizing
// states in a finite automaton, 1971.
DfaBlocks MinimizeDfa(const DfaEdges& dfa, std::span<const int32_t> first,
                      std::span<const int32_t> distances,
                      std::span<const int32_t> order, HashKey key = kHashKey);

}  // namespace espalier

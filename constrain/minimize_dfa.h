// MinimizeDfa: merges the equal states of a deterministic automaton.
#pragma once

#include <cstdint>
#include <vector>

#include "constrain/dfa_edges.h"

namespace espalier {

// Returns the block of each state. Two states have one block if and only if the
// same bytes lead from them to an accepting state. Blocks are numbered from 0
// in no particular order.
//
//   result  [dfa.num_states()]  in [0, number of blocks)
//
// Takes O(edges * log(states)) steps and 40 bytes an edge.
// REQUIRES: each state leads to an accepting one.
// Source: Valmari, Fast brief practical DFA minimization, Information
// Processing Letters 112(6), 2012.
std::vector<int32_t> MinimizeDfa(const DfaEdges& dfa);

}  // namespace espalier

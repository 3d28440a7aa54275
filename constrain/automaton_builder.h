// BuildAutomaton: makes the minimal ByteAutomaton of a deterministic automaton.
#pragma once

#include "absl/status/statusor.h"
#include "constrain/byte_automaton.h"
#include "constrain/compile_budget.h"
#include "constrain/dfa_edges.h"

namespace espalier {

// Removes states that the start does not lead to or that lead to no text,
// merges equal states and equal classes of bytes, and numbers the states.
// Errors: kInvalidArgument if the language has no text, or if the automaton
// exceeds limits of `budget`.
absl::StatusOr<ByteAutomaton> BuildAutomaton(DfaEdges dfa,
                                             CompileBudget* budget);

}  // namespace espalier

// CompileChoice: the language of given texts, as an automaton.
//
// Thread safety: functions without state.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "constrain/byte_automaton.h"
#include "constrain/compile_budget.h"

namespace espalier {

// Takes O(bytes of the texts) steps and memory for the minimal automaton, so
// that many texts with equal endings stay small.
// Errors: kInvalidArgument if there is no text, or what of `limits` is
// exceeded. Source: Daciuk et al., Incremental construction of minimal acyclic
// finite-state automata, Computational Linguistics 26(1), 2000.
absl::StatusOr<ByteAutomaton> CompileChoice(std::span<const std::string> texts,
                                            const CompileLimits& limits = {});
// As above, as a part of another compilation.
absl::StatusOr<ByteAutomaton> CompileChoice(std::span<const std::string> texts,
                                            CompileBudget* budget);

}  // namespace espalier

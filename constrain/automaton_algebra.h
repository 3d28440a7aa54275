// Boolean operations on languages, and automata as parts of larger ones.
//
// An unset automaton is the empty language, which no ByteAutomaton has.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "constrain/boolean_formula.h"
#include "constrain/byte_automaton.h"
#include "constrain/byte_nfa.h"
#include "constrain/compile_budget.h"

namespace espalier {

// Returns the texts of the language `universe` for which `decide` is true.
// `decide` gets for each automaton whether the text is in it, or kUnknown for
// a beginning of a text that may or may not become one of it. If it then
// returns kFalse, no longer text is tried. It is called once for each different
// list, and takes its own steps.
// Errors: kInvalidArgument if the budget is spent.
absl::StatusOr<std::optional<ByteAutomaton>> CombineAutomata(
    const ByteAutomaton& universe,
    std::span<const ByteAutomaton* const> automata,
    absl::FunctionRef<Truth(std::span<const Truth>)> decide,
    CompileBudget* budget);

// An automaton as ranges of bytes, to add many copies of it to others.
struct AutomatonRanges {
  struct Edge {
    int32_t from = 0;
    uint8_t first = 0;
    uint8_t last = 0;
    int32_t to = 0;
  };
  explicit AutomatonRanges(const ByteAutomaton& automaton);

  int num_states = 0;
  std::vector<Edge> edges = {};       // by `from`, ascending
  std::vector<int32_t> accepts = {};  // states
};

// Adds the texts of `language` as paths from `from` to `to`. No path leads back
// to `from`, so several languages may begin there.
// Errors: kInvalidArgument if the budget of `nfa` is spent.
absl::Status AddAutomaton(const AutomatonRanges& language, ByteNfa::State from,
                          ByteNfa::State to, ByteNfa* nfa);

}  // namespace espalier

// ByteNfa: a nondeterministic finite automaton over bytes, which languages are
// composed in before they become a ByteAutomaton. States are joined by edges
// that take a byte of a range, or none (empty edges). An empty edge may have a
// condition: that nothing was taken before, or that nothing follows.
//
// Thread safety: none; one compilation's own.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "constrain/byte_automaton.h"
#include "constrain/compile_budget.h"
#include "constrain/dfa_edges.h"

namespace espalier {

// Condition of an empty edge.
enum class NfaCondition : uint8_t {
  kAlways,
  kAtStart,  // "^": no byte was taken
  kAtEnd,    // "$": no byte follows
};

class ByteNfa {
 public:
  using State = int32_t;

  // `budget` outlives this.
  explicit ByteNfa(CompileBudget* budget) : budget_(budget) {}

  // Errors: kInvalidArgument if the budget is spent.
  absl::StatusOr<State> AddState();
  // Each takes steps for its memory. Errors: as AddState.
  absl::Status AddBytes(State from, uint8_t first, uint8_t last, State to) {
    RETURN_IF_ERROR(budget_->Take(kStepsForMemory));
    byte_edges_.push_back({from, first, last, to});
    return absl::OkStatus();
  }
  absl::Status AddEmpty(State from, State to,
                        NfaCondition condition = NfaCondition::kAlways) {
    RETURN_IF_ERROR(budget_->Take(kStepsForMemory));
    empty_edges_.push_back({from, condition, to});
    return absl::OkStatus();
  }

  // Returns the automaton of the texts that lead from `start` to `end`. The NFA
  // is empty afterwards.
  // Errors: as BuildAutomaton.
  absl::StatusOr<ByteAutomaton> Build(State start, State end) &&;

 private:
  struct ByteEdge {
    State from;
    uint8_t first;
    uint8_t last;
    State to;
  };
  struct EmptyEdge {
    State from;
    NfaCondition condition;
    State to;
  };
  friend class SubsetConstruction;

  // A state or an edge takes some 30 bytes until the automaton is built.
  static constexpr int64_t kStepsForMemory = 12;

  CompileBudget* budget_;
  int32_t num_states_ = 0;
  std::vector<ByteEdge> byte_edges_;
  std::vector<EmptyEdge> empty_edges_;
};

}  // namespace espalier

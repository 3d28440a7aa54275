// Utf8Sets: adds sets of code points to an NFA as their texts in UTF-8, by the
// minimal automaton of each set. That of \p{L} has a fraction of the edges that
// its ranges have.
//
// Thread safety: none; one compilation's own.
#pragma once

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "constrain/automaton_algebra.h"
#include "constrain/byte_nfa.h"
#include "constrain/code_point_set.h"
#include "constrain/compile_budget.h"

namespace espalier {

class Utf8Sets {
 public:
  // `budget` outlives this.
  explicit Utf8Sets(CompileBudget* budget) : budget_(*budget) {}

  // Adds paths from `from`, and returns the state that they lead to. No path
  // leads back to `from`.
  // Errors: kInvalidArgument if the budget is spent, or that of `nfa`.
  absl::StatusOr<ByteNfa::State> Add(const CodePointSet& set,
                                     ByteNfa::State from, ByteNfa* nfa);

 private:
  // No edge leaves its end.
  absl::StatusOr<AutomatonRanges> Utf8Of(const CodePointSet& set);

  CompileBudget& budget_;
  // By the ranges of the set. Repetitions and equal classes share them.
  std::map<std::vector<CodePointSet::Range>, AutomatonRanges> utf8_of_sets_;
};

}  // namespace espalier

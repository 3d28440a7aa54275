// FormulaPool: boolean formulas over numbered variables, as shared nodes. Equal
// formulas, up to order, repetition and unit propagation, are one number, so a
// set of states that are formulas is finite.
//
//   FormulaPool pool(&budget);
//   const Formula f = pool.And({pool.Variable(1), Not(pool.Variable(2))});
//
// Each operation takes steps of the budget. Once it is spent, status() is an
// error and all further formulas are kFalse.
//
// Thread safety: none; one compilation's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "constrain/compile_budget.h"
#include "constrain/number_table.h"

namespace espalier {

// Twice the number of a node, plus one if it is negated.
using Formula = int32_t;
constexpr Formula Not(Formula formula) { return formula ^ 1; }

enum class Truth : uint8_t { kFalse, kTrue, kUnknown };

class FormulaPool {
 public:
  static constexpr Formula kTrue = 0;
  static constexpr Formula kFalse = 1;

  // `budget` outlives this.
  explicit FormulaPool(CompileBudget* budget);
  FormulaPool(const FormulaPool&) = delete;
  FormulaPool& operator=(const FormulaPool&) = delete;

  const absl::Status& status() const { return status_; }

  // REQUIRES: `variable` is not negative.
  Formula Variable(int32_t variable);
  Formula And(std::vector<Formula> parts);
  Formula Or(std::vector<Formula> parts);
  // True if exactly one part is.
  Formula ExactlyOne(std::span<const Formula> parts);
  // If `condition` then `yes`, else `no`.
  Formula If(Formula condition, Formula yes, Formula no) {
    return And({Or({Not(condition), yes}), Or({condition, no})});
  }

  // Returns `formula` with value(v) in place of each variable v.
  Formula Substitute(Formula formula,
                     absl::FunctionRef<Formula(int32_t)> value);
  // As Substitute, with truth values, some of which may be unknown.
  Truth Evaluate(Formula formula, absl::FunctionRef<Truth(int32_t)> value);
  // Returns the number of parts, of parts of parts, and so on, each node once:
  // the most that Evaluate visits.
  int64_t NumParts(Formula formula) const;
  // Returns the variables of a formula, ascending.
  std::vector<int32_t> VariablesOf(Formula formula) const;

  // Calls visit(variable, is_positive) for each way that the formula depends on
  // a variable: a greater one makes it true, or false.
  void ForEachPolarity(Formula formula,
                       absl::FunctionRef<void(int32_t, bool)> visit) const;

 private:
  struct Node {
    int32_t variable = -1;            // a leaf's
    std::vector<Formula> parts = {};  // all of them are true; ascending
  };
  struct Sums;

  bool Take(int64_t steps);
  Formula AddNode(Node node);
  // Adds `part` and, if it is a conjunction, its parts.
  void AddParts(Formula part, std::vector<Formula>* parts) const;
  // Simplifies each disjunction among `parts` by the other parts. Returns
  // false if nothing changed.
  bool Propagate(std::vector<Formula>* parts);
  Sums SumOf(std::span<const Formula> parts);

  CompileBudget* budget_;
  absl::Status status_;
  std::vector<Node> nodes_;
  std::map<int32_t, Formula> variables_;
  NumberTable conjunctions_;  // nodes by their parts
  // By node, results of Substitute that are valid with its stamp. The first are
  // those of an outermost call, and the next those of a call within it.
  std::deque<std::vector<std::pair<int64_t, Formula>>> substitutes_;
  size_t num_substitutions_ = 0;  // nested calls in progress
  // Formulas that ForEachPolarity has seen have its stamp.
  mutable std::vector<int64_t> seen_;
  // Results of Evaluate by node, valid if they have its stamp.
  std::vector<std::pair<int64_t, Truth>> results_;
  mutable int64_t stamp_ = 0;
};

}  // namespace espalier

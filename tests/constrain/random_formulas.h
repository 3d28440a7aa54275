// Random boolean formulas, and their values by definition.
#pragma once

#include <cstdint>
#include <functional>
#include <random>

#include "constrain/boolean_formula.h"

namespace espalier::testing {

struct MadeFormula {
  Formula formula = FormulaPool::kTrue;
  // Its value where variable v is bit v.
  std::function<bool(uint32_t)> value;
};

// Returns a formula of about `size` operations on variables below
// `num_variables`.
MadeFormula RandomFormula(int num_variables, int size, FormulaPool* pool,
                          std::mt19937_64& random);

}  // namespace espalier::testing

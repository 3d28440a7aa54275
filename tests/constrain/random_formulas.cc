#include "tests/constrain/random_formulas.h"

#include <vector>

namespace espalier::testing {

MadeFormula RandomFormula(int num_variables, int size, FormulaPool* pool,
                          std::mt19937_64& random) {
  if (size <= 1) {
    const auto variable = static_cast<int32_t>(random() % num_variables);
    return {pool->Variable(variable), [variable](uint32_t values) {
              return (values >> variable & 1) != 0;
            }};
  }
  const auto operation = static_cast<int>(random() % 4);
  if (operation == 0) {
    const MadeFormula part =
        RandomFormula(num_variables, size - 1, pool, random);
    return {Not(part.formula),
            [part](uint32_t values) { return !part.value(values); }};
  }
  std::vector<MadeFormula> parts;
  std::vector<Formula> formulas;
  const int num_parts = 2 + static_cast<int>(random() % 3);
  for (int i = 0; i < num_parts; ++i) {
    parts.push_back(
        RandomFormula(num_variables, size / num_parts, pool, random));
    formulas.push_back(parts.back().formula);
  }
  const auto value = [parts, operation](uint32_t values) {
    int num_true = 0;
    for (const MadeFormula& part : parts) num_true += part.value(values);
    if (operation == 1) return num_true == static_cast<int>(parts.size());
    return operation == 2 ? num_true > 0 : num_true == 1;
  };
  if (operation == 1) return {pool->And(formulas), value};
  if (operation == 2) return {pool->Or(formulas), value};
  return {pool->ExactlyOne(formulas), value};
}

}  // namespace espalier::testing

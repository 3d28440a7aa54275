#include "constrain/boolean_formula.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "constrain/compile_budget.h"
#include "tests/constrain/random_formulas.h"
#include "tests/few_cases.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::RandomFormula;

constexpr int kNumVariables = 5;

// A formula's value where the variables are the bits of `values`.
bool Value(FormulaPool& pool, Formula formula, uint32_t values) {
  return pool.Evaluate(formula, [&](int32_t variable) {
    return (values >> variable & 1) != 0 ? Truth::kTrue : Truth::kFalse;
  }) == Truth::kTrue;
}

TEST(BooleanFormulaTest, FormulasHaveTheValuesOfTheirOperations) {
  std::mt19937_64 random(1);
  CompileBudget budget;
  FormulaPool pool(&budget);
  for (int i = 0; i < Cases(200, 30); ++i) {
    const auto made = RandomFormula(kNumVariables, 12, &pool, random);
    for (uint32_t values = 0; values < 1U << kNumVariables; ++values) {
      EXPECT_EQ(Value(pool, made.formula, values), made.value(values));
    }
  }
}

TEST(BooleanFormulaTest, SubstitutionIsThatOfValues) {
  std::mt19937_64 random(2);
  CompileBudget budget;
  FormulaPool pool(&budget);
  for (int i = 0; i < Cases(100, 20); ++i) {
    const auto outer = RandomFormula(kNumVariables, 8, &pool, random);
    const auto inner = RandomFormula(kNumVariables, 4, &pool, random);
    const Formula replaced =
        pool.Substitute(outer.formula, [&](int32_t variable) {
          return variable == 0 ? inner.formula : pool.Variable(variable);
        });
    for (uint32_t values = 0; values < 1U << kNumVariables; ++values) {
      const uint32_t other = (values & ~1U) | (inner.value(values) ? 1U : 0U);
      EXPECT_EQ(Value(pool, replaced, values), outer.value(other));
    }
  }
}

// An unknown variable leaves a value that it decides unknown, never wrong.
TEST(BooleanFormulaTest, UnknownVariablesDecideNothing) {
  std::mt19937_64 random(3);
  CompileBudget budget;
  FormulaPool pool(&budget);
  for (int i = 0; i < Cases(200, 30); ++i) {
    const auto made = RandomFormula(kNumVariables, 10, &pool, random);
    const Truth truth = pool.Evaluate(made.formula, [](int32_t variable) {
      return variable == 0 ? Truth::kTrue : Truth::kUnknown;
    });
    for (uint32_t values = 1; values < 1U << kNumVariables; values += 2) {
      if (truth == Truth::kUnknown) continue;
      EXPECT_EQ(truth == Truth::kTrue, made.value(values));
    }
  }
}

TEST(BooleanFormulaTest, SharedPartsCountOnce) {
  CompileBudget budget;
  FormulaPool pool(&budget);
  const Formula a = pool.Variable(0);
  const Formula b = pool.Variable(1);
  const Formula c = pool.Variable(2);
  const Formula both = pool.And({a, b});
  EXPECT_EQ(pool.NumParts(FormulaPool::kTrue), 0);
  EXPECT_EQ(pool.NumParts(Not(a)), 0);
  EXPECT_EQ(pool.NumParts(both), 2);
  const Formula d = pool.Variable(3);
  EXPECT_EQ(pool.NumParts(pool.And({pool.Or({c, both}), pool.Or({d, both})})),
            8);
}

TEST(BooleanFormulaTest, EqualFormulasAreOneNumber) {
  CompileBudget budget;
  FormulaPool pool(&budget);
  const Formula a = pool.Variable(0);
  const Formula b = pool.Variable(1);
  const Formula c = pool.Variable(2);
  EXPECT_EQ(pool.And({a, pool.And({b, c})}), pool.And({c, a, b, a}));
  EXPECT_EQ(pool.Or({a, b}), Not(pool.And({Not(b), Not(a)})));
  EXPECT_EQ(pool.And({a, pool.Or({Not(a), b})}), pool.And({a, b}));
  EXPECT_EQ(pool.And({a, pool.Or({a, b})}), a);
  EXPECT_EQ(pool.And({a, Not(a)}), FormulaPool::kFalse);
  EXPECT_EQ(pool.Or({a, Not(a)}), FormulaPool::kTrue);
  EXPECT_EQ(pool.ExactlyOne({}), FormulaPool::kFalse);
}

TEST(BooleanFormulaTest, ASpentBudgetIsAnError) {
  CompileBudget budget({.max_steps = 200});
  FormulaPool pool(&budget);
  for (int i = 0; i < 100; ++i) {
    pool.And({pool.Variable(i), pool.Variable(i + 1)});
  }
  EXPECT_FALSE(pool.status().ok());
}

}  // namespace
}  // namespace espalier

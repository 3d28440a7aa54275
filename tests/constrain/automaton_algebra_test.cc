#include "constrain/automaton_algebra.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "constrain/boolean_formula.h"
#include "constrain/byte_nfa.h"
#include "constrain/compile_budget.h"
#include "constrain/regex_language.h"
#include "tests/constrain/random_formulas.h"
#include "tests/constrain/random_patterns.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::AllTexts;
using ::espalier::testing::Cases;
using ::espalier::testing::RandomFormula;
using ::espalier::testing::RandomPattern;

ByteAutomaton CompiledPattern(const std::string& pattern) {
  auto automaton = CompileRegex(pattern);
  EXPECT_TRUE(automaton.ok()) << pattern << automaton.status();
  return *std::move(automaton);
}

// A random formula of random languages has the texts that the formula says, and
// equal languages have equal automata.
TEST(AutomatonAlgebraTest, CombinationsHaveTheTextsOfTheFormula) {
  std::mt19937_64 random(1);
  const ByteAutomaton universe = CompiledPattern("[abc]{0,5}");
  const std::vector<std::string> texts = AllTexts("abc", 6);
  for (int i = 0; i < Cases(60, 6); ++i) {
    std::vector<ByteAutomaton> languages;
    for (int l = 0; l < 3; ++l) {
      languages.push_back(CompiledPattern(RandomPattern(4, random)));
    }
    std::vector<const ByteAutomaton*> automata;
    for (const ByteAutomaton& language : languages) {
      automata.push_back(&language);
    }
    CompileBudget budget;
    FormulaPool pool(&budget);
    const auto made = RandomFormula(3, 8, &pool, random);
    const auto combine = [&](Formula formula) {
      auto combined = CombineAutomata(
          universe, automata,
          [&](std::span<const Truth> truths) {
            return pool.Evaluate(
                formula, [&](int32_t variable) { return truths[variable]; });
          },
          &budget);
      EXPECT_TRUE(combined.ok()) << combined.status();
      return *std::move(combined);
    };
    const auto combined = combine(made.formula);
    const auto rest = combine(Not(made.formula));
    for (const std::string& text : texts) {
      uint32_t values = 0;
      for (int l = 0; l < 3; ++l) {
        if (languages[l].Match(text).in_language) values |= 1U << l;
      }
      const bool is_short = text.size() <= 5;
      EXPECT_EQ(combined && combined->Match(text).in_language,
                is_short && made.value(values));
      EXPECT_EQ(rest && rest->Match(text).in_language,
                is_short && !made.value(values));
    }
    // The complement of the complement is the same automaton.
    EXPECT_EQ(combine(Not(Not(made.formula))), combined);
  }
}

TEST(AutomatonAlgebraTest, CopiesOfAnAutomatonHaveItsTexts) {
  std::mt19937_64 random(2);
  for (int i = 0; i < Cases(40, 6); ++i) {
    const std::string pattern = RandomPattern(4, random);
    const ByteAutomaton automaton = CompiledPattern(pattern);
    const AutomatonRanges ranges(automaton);
    CompileBudget budget;
    ByteNfa nfa(&budget);
    const auto start = nfa.AddState();
    const auto middle = nfa.AddState();
    const auto end = nfa.AddState();
    ASSERT_TRUE(start.ok() && middle.ok() && end.ok());
    ASSERT_TRUE(AddAutomaton(ranges, *start, *middle, &nfa).ok());
    ASSERT_TRUE(AddAutomaton(ranges, *middle, *end, &nfa).ok());
    const auto twice = std::move(nfa).Build(*start, *end);
    ASSERT_TRUE(twice.ok()) << twice.status();
    EXPECT_EQ(*twice, CompiledPattern("(?:" + pattern + "){2}")) << pattern;
  }
}

// Many automata have far more states than lists of truths.
TEST(AutomatonAlgebraTest, EachListOfTruthsIsDecidedOnce) {
  const ByteAutomaton universe = CompiledPattern("a*b?");
  std::vector<ByteAutomaton> languages;
  for (int i = 0; i < 12; ++i) {
    languages.push_back(
        CompiledPattern(Concat("(?:a{", 2 + i % 3, "})*b?c{", i, "}")));
  }
  std::vector<const ByteAutomaton*> automata;
  for (const ByteAutomaton& language : languages) automata.push_back(&language);
  std::set<std::vector<Truth>> lists;
  CompileBudget budget;
  const auto combined = CombineAutomata(
      universe, automata,
      [&](std::span<const Truth> truths) {
        EXPECT_TRUE(lists.emplace(truths.begin(), truths.end()).second);
        return truths[0];
      },
      &budget);
  ASSERT_TRUE(combined.ok()) << combined.status();
  EXPECT_GT(lists.size(), 2);
}

TEST(AutomatonAlgebraTest, AProductBeyondTheBudgetIsAnError) {
  const ByteAutomaton universe = CompiledPattern("[ab]*");
  const ByteAutomaton a = CompiledPattern("(?:[ab]{97})*");
  const ByteAutomaton b = CompiledPattern("(?:[ab]{89})*");
  const std::vector<const ByteAutomaton*> automata = {&a, &b};
  const auto both = [](std::span<const Truth> truths) {
    if (truths[0] == Truth::kFalse || truths[1] == Truth::kFalse) {
      return Truth::kFalse;
    }
    return truths[0] == truths[1] ? truths[0] : Truth::kUnknown;
  };
  CompileBudget budget;
  const auto combined = CombineAutomata(universe, automata, both, &budget);
  ASSERT_TRUE(combined.ok()) << combined.status();
  EXPECT_EQ((*combined)->num_states(), 97 * 89);
  CompileBudget small({.max_steps = 100'000});
  EXPECT_FALSE(CombineAutomata(universe, automata, both, &small).ok());
}

}  // namespace
}  // namespace espalier

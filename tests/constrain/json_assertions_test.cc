#include "constrain/json_assertions.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "constrain/compile_budget.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

// A long formula is evaluated for each set of its languages that has a string.
TEST(JsonAssertionsTest, AFormulaTakesStepsForItsParts) {
  constexpr int kNumLanguages = 12;
  CompileBudget budget;
  JsonAssertions assertions(&budget);
  std::vector<Formula> languages;
  for (int i = 0; i < kNumLanguages; ++i) {
    const std::string text(1, static_cast<char>('a' + i));
    const auto language =
        assertions.AddTexts(JsonAssertions::Kind::kString, {text});
    ASSERT_TRUE(language.ok()) << language.status();
    languages.push_back(Not(*language));
  }
  // Not any six of them.
  std::vector<Formula> parts;
  for (uint32_t set = 0; set < 1U << kNumLanguages; ++set) {
    if (std::popcount(set) != 6) continue;
    std::vector<Formula> six;
    for (int i = 0; i < kNumLanguages; ++i) {
      if ((set >> i & 1) != 0) six.push_back(languages[i]);
    }
    parts.push_back(assertions.pool().Or(std::move(six)));
  }
  const Formula formula = assertions.pool().And(std::move(parts));
  const int64_t num_parts = assertions.pool().NumParts(formula);
  EXPECT_EQ(num_parts, 924 * (1 + 6));
  const int64_t before = budget.work().steps;
  ASSERT_TRUE(assertions.Strings(formula).ok());
  EXPECT_GT(budget.work().steps - before, kNumLanguages * num_parts);
}

}  // namespace
}  // namespace espalier

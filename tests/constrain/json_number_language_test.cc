#include "constrain/json_number_language.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/json.h"
#include "constrain/compile_budget.h"
#include "tests/constrain/random_patterns.h"

namespace espalier {
namespace {

using ::espalier::testing::AllTexts;

Decimal DecimalOrDie(const std::string& text) {
  const auto value = ParseJson(text);
  EXPECT_TRUE(value.ok()) << text;
  const auto decimal = DecimalOf(*value);
  EXPECT_TRUE(decimal.ok()) << decimal.status();
  return *decimal;
}

// All canonical numbers of at most five bytes of these.
std::vector<std::string> Canonical() {
  CompileBudget budget;
  const auto automaton = CanonicalNumbers(&budget);
  EXPECT_TRUE(automaton.ok()) << automaton.status();
  std::vector<std::string> numbers;
  for (const std::string& text : AllTexts("-.01259", 5)) {
    if (automaton->Match(text).in_language) numbers.push_back(text);
  }
  return numbers;
}

TEST(JsonNumberLanguageTest, ACanonicalNumberIsTheTextOfItsValue) {
  for (const std::string text :
       {"0", "1", "-1", "10", "0.5", "-0.5", "1.25", "100.01"}) {
    EXPECT_EQ(DecimalOrDie(text).Text(), text);
  }
  EXPECT_EQ(DecimalOrDie("1e3").Text(), "1000");
  EXPECT_EQ(DecimalOrDie("1.0").Text(), "1");
  EXPECT_EQ(DecimalOrDie("-0.0").Text(), "0");
  EXPECT_EQ(DecimalOrDie("2.5e-3").Text(), "0.0025");
  EXPECT_EQ(DecimalOrDie("18446744073709551615").Text(),
            "18446744073709551615");
  const std::vector<std::string> numbers = Canonical();
  EXPECT_GT(numbers.size(), 1000);
  for (const std::string& text : numbers) {
    EXPECT_EQ(DecimalOrDie(text).Text(), text);
  }
  // A double does not keep these digits.
  EXPECT_FALSE(DecimalOf(*ParseJson("123456789012345678901")).ok());
}

TEST(JsonNumberLanguageTest, BoundsAreThoseOfValues) {
  const std::vector<std::string> numbers = Canonical();
  for (const std::string bound :
       {"0", "1", "-1", "12", "-12", "0.5", "-0.5", "1.25", "-1.25", "9.9",
        "99", "100", "-0.05", "0.001", "1e3", "123456"}) {
    for (const bool is_included : {true, false}) {
      CompileBudget budget;
      const auto automaton =
          NumbersFrom(DecimalOrDie(bound), is_included, &budget);
      ASSERT_TRUE(automaton.ok()) << automaton.status();
      const double limit = std::strtod(bound.c_str(), nullptr);
      for (const std::string& text : numbers) {
        const double value = std::strtod(text.c_str(), nullptr);
        EXPECT_EQ(automaton->Match(text).in_language,
                  is_included ? value >= limit : value > limit)
            << text << " from " << bound;
      }
    }
  }
}

TEST(JsonNumberLanguageTest, MultiplesAreThoseOfValues) {
  const std::vector<std::string> numbers = Canonical();
  for (const std::string divisor :
       {"1", "2", "3", "7", "10", "12", "0.5", "0.25", "0.01", "1.5", "0.3",
        "1e-8", "2.5", "125"}) {
    CompileBudget budget;
    const auto automaton = MultiplesOf(DecimalOrDie(divisor), &budget);
    ASSERT_TRUE(automaton.ok()) << automaton.status();
    // In units of 10^-8 all values here are whole.
    const auto units =
        std::llround(std::strtod(divisor.c_str(), nullptr) * 1e8);
    for (const std::string& text : numbers) {
      const auto value = std::llround(std::strtod(text.c_str(), nullptr) * 1e8);
      EXPECT_EQ(automaton->Match(text).in_language, value % units == 0)
          << text << " of " << divisor;
    }
  }
  CompileBudget budget;
  EXPECT_FALSE(MultiplesOf(DecimalOrDie("123456789"), &budget).ok());
}

}  // namespace
}  // namespace espalier

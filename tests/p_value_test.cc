#include "tests/p_value.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

namespace espalier::testing {
namespace {

TEST(PValueTest, TailsAreThoseOfTheTables) {
  EXPECT_NEAR(ChiSquareTail(3.841459, 1), 0.05, 1e-7);
  EXPECT_NEAR(ChiSquareTail(18.307038, 10), 0.05, 1e-7);
  EXPECT_NEAR(ChiSquareTail(149.449, 100), 0.001, 1e-6);
  EXPECT_NEAR(ChiSquareTail(67.328, 100), 0.995, 1e-5);
}

// With 2 degrees the tail is exp(-x / 2); with 1 it is that of a normal.
TEST(PValueTest, TailsHaveTheirClosedForms) {
  for (const double x : {0.0, 0.1, 1.0, 5.0, 40.0, 300.0}) {
    EXPECT_NEAR(ChiSquareTail(x, 2) / std::exp(-x / 2), 1, 1e-12) << x;
    EXPECT_NEAR(ChiSquareTail(x, 1) / NormalPValue(std::sqrt(x)), 1, 1e-10);
    EXPECT_NEAR(ChiSquareTail(x, 4) / (std::exp(-x / 2) * (1 + x / 2)), 1,
                1e-10);
  }
}

TEST(PValueTest, ItIsUniformWhereTheProbabilitiesAreRight) {
  const std::vector<double> p = {0.5, 0.25, 0.2, 0.05};
  std::mt19937 random(1);
  std::discrete_distribution<int> draw(p.begin(), p.end());
  std::array<int64_t, 10> tenths = {};
  for (int i = 0; i < 2000; ++i) {
    std::array<int64_t, 4> counts = {};
    for (int k = 0; k < 1000; ++k) ++counts[draw(random)];
    ++tenths[static_cast<int>(10 * ChiSquarePValue(p, counts) * 0.999999)];
  }
  EXPECT_GT(ChiSquarePValue(std::vector<double>(10, 0.1), tenths), 1e-3);
}

TEST(PValueTest, CountsAsExpectedAreLikelyAndOthersAreNot) {
  const std::vector<double> p = {0.5, 0.3, 0.2, 0.0};
  EXPECT_NEAR(ChiSquarePValue(p, std::vector{500, 300, 200, 0}), 1, 1e-12);
  EXPECT_LT(ChiSquarePValue(p, std::vector{600, 250, 150, 0}), 1e-8);
}

TEST(PValueTest, TheImpossibleHasNone) {
  EXPECT_EQ(ChiSquarePValue(std::vector<double>{1, 0},
                            std::vector<int64_t>{1000000, 1}),
            0);
  EXPECT_EQ(ChiSquarePValue(std::vector<double>{1, 0},
                            std::vector<int64_t>{1000000, 0}),
            1);
}

}  // namespace
}  // namespace espalier::testing

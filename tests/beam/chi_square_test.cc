#include "tests/beam/chi_square.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace espalier::testing {
namespace {

// With 2 degrees the tail is exp(-x / 2); with 1 it is that of a normal.
TEST(ChiSquareTest, TailsHaveTheirClosedForms) {
  for (const double x : {0.1, 1.0, 3.0, 10.0, 60.0}) {
    EXPECT_NEAR(ChiSquareTail(x, 2) / std::exp(-x / 2), 1, 1e-10);
    EXPECT_NEAR(ChiSquareTail(x, 1) / NormalPValue(std::sqrt(x)), 1, 1e-10);
    EXPECT_NEAR(ChiSquareTail(x, 4) / (std::exp(-x / 2) * (1 + x / 2)), 1,
                1e-10);
  }
  EXPECT_NEAR(ChiSquareTail(100, 100), 0.4812, 1e-3);
}

TEST(ChiSquareTest, CountsAsExpectedAreLikelyAndOthersAreNot) {
  const std::vector<double> p = {0.5, 0.3, 0.2, 0.0};
  EXPECT_NEAR(PValue(std::vector{500, 300, 200, 0}, p), 1, 1e-12);
  EXPECT_LT(PValue(std::vector{600, 250, 150, 0}, p), 1e-8);
  EXPECT_EQ(PValue(std::vector{499, 300, 200, 1}, p), 0);
}

}  // namespace
}  // namespace espalier::testing

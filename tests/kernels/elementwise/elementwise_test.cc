#include "kernels/elementwise/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/kernels/each_target.h"

namespace espalier {
namespace {

using RmsNormTest = TargetTest;
using SiluMulTest = TargetTest;
using ElementwiseTest = TargetTest;
using AddInPlaceTest = TargetTest;
using RotaryTableTest = TargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, RmsNormTest, EachTarget(), TargetTestName);
INSTANTIATE_TEST_SUITE_P(Targets, SiluMulTest, EachTarget(), TargetTestName);
INSTANTIATE_TEST_SUITE_P(Targets, ElementwiseTest, EachTarget(),
                         TargetTestName);
INSTANTIATE_TEST_SUITE_P(Targets, AddInPlaceTest, EachTarget(), TargetTestName);
INSTANTIATE_TEST_SUITE_P(Targets, RotaryTableTest, EachTarget(),
                         TargetTestName);

constexpr double kUnit = 0x1p-24;  // the relative error of one rounding

// Normal numbers with an outlier of either sign here and there.
std::vector<float> RandomFloats(size_t count, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (size_t i = 0; i < count; ++i) {
    x[i] = normal(random) * (i % 11 == 5 ? 50.0f : 1.0f);
  }
  return x;
}

TEST_P(RmsNormTest, MatchesTheTwinAtAnySize) {
  for (const int size : {1, 2, 15, 16, 17, 64, 100, 256, 1000}) {
    const std::vector<float> x = RandomFloats(3 * size, size);
    const std::vector<float> weight = RandomFloats(size, size + 1);
    std::vector<float> out(x.size());
    RmsNorm(x, weight, 1e-5f, out);
    const auto expected = reference::RmsNorm(x, weight, 1e-5f);
    for (size_t i = 0; i < out.size(); ++i) {
      // The squares are added in at least four chains; the root halves their
      // error, and six roundings follow.
      const double tolerance =
          std::abs(expected[i]) * kUnit * (size / 8.0 + 10);
      ASSERT_NEAR(out[i], expected[i], tolerance) << size << " at " << i;
    }
  }
}

TEST_P(RmsNormTest, ARowOfZerosStaysZeroAndMayBeDoneInPlace) {
  std::vector<float> x = RandomFloats(40, 1);
  std::fill(x.begin() + 20, x.end(), 0.0f);
  const std::vector<float> weight = RandomFloats(20, 2);
  std::vector<float> out(40);
  RmsNorm(x, weight, 1e-6f, out);
  RmsNorm(x, weight, 1e-6f, x);
  EXPECT_EQ(x, out);
  EXPECT_EQ(std::vector<float>(out.begin() + 20, out.end()),
            std::vector<float>(20, 0.0f));
}

TEST_P(SiluMulTest, MatchesTheTwinAtAnySizeAndMagnitude) {
  for (const int size : {1, 15, 16, 17, 100}) {
    std::vector<float> gate_up = RandomFloats(4 * size, size);
    gate_up[0] = -1e4f;
    gate_up[2 * size] = 1e4f;
    std::vector<float> out(2 * size);
    SiluMul(gate_up, size, out);
    const auto expected = reference::SiluMul(gate_up, size);
    for (size_t i = 0; i < out.size(); ++i) {
      // exp is good to two units, and five roundings follow; below the normal
      // numbers the error is absolute.
      ASSERT_NEAR(out[i], expected[i],
                  std::abs(expected[i]) * kUnit * 9 + 0x1p-120)
          << size << " at " << i;
    }
  }
}

constexpr float kSpecials[] = {NAN, INFINITY, -INFINITY};

bool EqualOrNear(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::abs(a - b) <= 1e-5 * std::abs(b);
}

TEST_P(RmsNormTest, NanAndInfinitiesCountAsInTheTwin) {
  for (const int size : {1, 16, 17, 100}) {
    const std::vector<float> weight = RandomFloats(size, size + 1);
    for (const float special : kSpecials) {
      for (int where = 0; where < size; ++where) {
        std::vector<float> x = RandomFloats(size, size);
        x[where] = special;
        std::vector<float> out(size);
        RmsNorm(x, weight, 1e-5f, out);
        const auto expected = reference::RmsNorm(x, weight, 1e-5f);
        for (int i = 0; i < size; ++i) {
          ASSERT_PRED2(EqualOrNear, out[i], expected[i])
              << special << " at " << where << " of " << size;
        }
      }
    }
  }
}

TEST_P(SiluMulTest, NanAndInfinitiesCountAsInTheTwin) {
  for (const int size : {1, 16, 17, 100}) {
    for (const float special : kSpecials) {
      for (int where = 0; where < 2 * size; ++where) {
        std::vector<float> gate_up = RandomFloats(2 * size, size);
        for (float& value : gate_up) value /= 4;  // silu is 0 nowhere
        gate_up[where] = special;
        std::vector<float> out(size);
        SiluMul(gate_up, size, out);
        const auto expected = reference::SiluMul(gate_up, size);
        for (int i = 0; i < size; ++i) {
          ASSERT_PRED2(EqualOrNear, out[i], expected[i])
              << special << " at " << where << " of " << size;
        }
      }
    }
  }
}

TEST_P(ElementwiseTest, RowsDoNotSeeEachOther) {
  const int size = 37;
  const std::vector<float> x = RandomFloats(8 * 2 * size, 3);
  std::vector<float> together(8 * size), alone(size);
  SiluMul(x, size, together);
  for (int i = 0; i < 8; ++i) {
    SiluMul(std::span(x).subspan(i * 2 * size, 2 * size), size, alone);
    EXPECT_EQ(alone, std::vector<float>(together.begin() + i * size,
                                        together.begin() + (i + 1) * size));
  }
}

TEST_P(AddInPlaceTest, AddsExactlyOnce) {
  std::vector<float> x = RandomFloats(45, 4);
  const std::vector<float> y = RandomFloats(45, 5);
  std::vector<float> expected(45);
  for (int i = 0; i < 45; ++i) expected[i] = x[i] + y[i];
  AddInPlace(y, x);
  EXPECT_EQ(x, expected);
}

std::vector<double> Frequencies(int half_dim) {
  std::vector<double> frequencies;
  for (int i = 0; i < half_dim; ++i) {
    frequencies.push_back(std::pow(10000.0, -double(i) / half_dim));
  }
  return frequencies;
}

TEST_P(RotaryTableTest, TurnsEachPairByPositionTimesFrequency) {
  for (const int half_dim : {1, 5, 16, 40}) {
    const std::vector<double> frequencies = Frequencies(half_dim);
    const RotaryTable table(frequencies, 1000);
    for (const int position : {0, 1, 77, 999}) {
      const std::vector<float> x = RandomFloats(3 * 2 * half_dim, half_dim);
      std::vector<float> y = x;
      table.Rotate(y, 3, position);
      for (int head = 0; head < 3; ++head) {
        for (int i = 0; i < half_dim; ++i) {
          const int at = head * 2 * half_dim + i;
          const double a = x[at], b = x[at + half_dim];
          const double angle = position * frequencies[i];
          const double tolerance = 3 * kUnit * (std::abs(a) + std::abs(b));
          EXPECT_NEAR(y[at], a * std::cos(angle) - b * std::sin(angle),
                      tolerance);
          EXPECT_NEAR(y[at + half_dim],
                      b * std::cos(angle) + a * std::sin(angle), tolerance);
        }
      }
    }
  }
}

TEST_P(RotaryTableTest, ProductsDependOnTheDistanceOfPositionsOnly) {
  const int half_dim = 32;
  const RotaryTable table(Frequencies(half_dim), 200);
  auto product = [&](int q_position, int k_position) {
    std::vector<float> q = RandomFloats(2 * half_dim, 6);
    std::vector<float> k = RandomFloats(2 * half_dim, 7);
    table.Rotate(q, 1, q_position);
    table.Rotate(k, 1, k_position);
    double sum = 0;
    for (int i = 0; i < 2 * half_dim; ++i) sum += double{q[i]} * k[i];
    return sum;
  };
  EXPECT_NEAR(product(10, 3), product(190, 183), 1e-3);
  EXPECT_GT(std::abs(product(10, 3) - product(10, 4)), 0.1);
}

}  // namespace
}  // namespace espalier

// The kernels of elementwise.h that only some architectures use.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/elementwise/elementwise.h"
#include "tests/kernels/each_target.h"

namespace espalier {
namespace {

using LayerNormTest = TargetTest;
using GeluTest = TargetTest;
using SoftCapTest = TargetTest;
using RowsTest = TargetTest;
using PartialRotaryTest = TargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, LayerNormTest, EachTarget(), TargetTestName);
INSTANTIATE_TEST_SUITE_P(Targets, GeluTest, EachTarget(), TargetTestName);
INSTANTIATE_TEST_SUITE_P(Targets, SoftCapTest, EachTarget(), TargetTestName);
INSTANTIATE_TEST_SUITE_P(Targets, RowsTest, EachTarget(), TargetTestName);
INSTANTIATE_TEST_SUITE_P(Targets, PartialRotaryTest, EachTarget(),
                         TargetTestName);

constexpr double kRounding = 0x1p-24;  // the relative error of one rounding
constexpr int kRowSizes[] = {1, 2, 15, 16, 17, 64, 100, 1000};
constexpr float kNotFinite[] = {NAN, INFINITY, -INFINITY};

std::vector<float> NormalFloats(size_t count, int seed, float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> x(count);
  for (float& value : x) value = normal(random);
  return x;
}

TEST_P(LayerNormTest, MatchesTheTwinAtAnySizeAndMean) {
  for (const int size : kRowSizes) {
    for (const float mean : {0.0f, -3.0f, 50.0f}) {
      std::vector<float> x = NormalFloats(3 * size, size);
      for (float& value : x) value += mean;
      const std::vector<float> weight = NormalFloats(size, size + 1);
      const std::vector<float> bias = NormalFloats(size, size + 2);
      std::vector<float> out(x.size());
      LayerNorm(x, weight, bias, 1e-5f, out);
      const auto expected = reference::LayerNorm(x, weight, bias, 1e-5);
      // Taking the mean off leaves the roundings of numbers as large as it, and
      // its own; where all are equal, the root of epsilon divides them.
      const double error = (size + 8.0) * kRounding * (std::abs(mean) + 4);
      const double least = size == 1 ? std::sqrt(1e-5) : 0.01;
      for (size_t i = 0; i < out.size(); ++i) {
        const double slope = std::abs(weight[i % size]) * error;
        ASSERT_NEAR(out[i], expected[i],
                    slope / least + 8 * kRounding * std::abs(expected[i]))
            << size << " at " << i;
      }
      LayerNorm(x, weight, bias, 1e-5f, x);
      EXPECT_EQ(x, out);
    }
  }
}

TEST_P(LayerNormTest, NanAndInfinitiesMakeTheirRowNan) {
  for (const int size : {1, 16, 17, 100}) {
    const std::vector<float> weight = NormalFloats(size, size + 1);
    for (const float special : kNotFinite) {
      for (int where = 0; where < size; ++where) {
        std::vector<float> x = NormalFloats(2 * size, size);
        x[where] = special;
        LayerNorm(x, weight, weight, 1e-5f, x);
        for (int i = 0; i < 2 * size; ++i) {
          ASSERT_EQ(std::isnan(x[i]), i < size) << special << " at " << where;
        }
      }
    }
  }
}

TEST_P(GeluTest, MatchesTheTwinAtAnySizeAndMagnitude) {
  for (const int size : kRowSizes) {
    for (const float deviation : {0.01f, 1.0f, 5.0f, 1000.0f}) {
      std::vector<float> gate_up = NormalFloats(4 * size, size, deviation);
      std::vector<float> out(2 * size);
      GeluMul(gate_up, size, out);
      const auto expected = reference::GeluMul(gate_up, size);
      for (size_t i = 0; i < out.size(); ++i) {
        // The sigmoid's argument is off by four roundings of up to 30, past
        // which gelu is nothing or all.
        const double up = gate_up[i + (i / size + 1) * size];
        ASSERT_NEAR(
            out[i], expected[i],
            std::abs(expected[i]) * kRounding * 140 + 1e-10 * std::abs(up))
            << size << " at " << i;
      }
      std::vector<float> alone(gate_up.begin(), gate_up.begin() + size);
      GeluInPlace(alone);
      for (int i = 0; i < size; ++i) {
        EXPECT_EQ(alone[i] * gate_up[size + i], out[i]);
      }
    }
  }
}

TEST_P(GeluTest, OtherActivationsMatchTheirFormulas) {
  for (const int size : kRowSizes) {
    for (const float deviation : {0.01f, 1.0f, 30.0f}) {
      const std::vector<float> x = NormalFloats(size, size, deviation);
      std::vector<float> silu = x, gelu = x, relu = x;
      SiluInPlace(silu);
      ExactGeluInPlace(gelu);
      ReluInPlace(relu);
      for (int i = 0; i < size; ++i) {
        const double scale = std::abs(double{x[i]}) * kRounding;
        ASSERT_NEAR(silu[i], reference::Silu(x[i]), 140 * scale + 1e-10);
        ASSERT_NEAR(gelu[i], reference::ExactGelu(x[i]), 8 * scale);
        ASSERT_EQ(relu[i], std::max(x[i], 0.0f));
      }
    }
  }
  for (const auto activate : {SiluInPlace, ExactGeluInPlace, ReluInPlace}) {
    std::vector<float> x = {NAN, INFINITY};
    activate(x);
    EXPECT_TRUE(std::isnan(x[0]));
    EXPECT_EQ(x[1], INFINITY);
  }
}

TEST_P(GeluTest, NanAndInfinities) {
  for (const int size : {1, 17, 40}) {
    std::vector<float> x(size, INFINITY);
    GeluInPlace(x);
    EXPECT_EQ(x, std::vector<float>(size, INFINITY));
    for (const float special : {NAN, -INFINITY}) {
      std::vector<float> y(size, special);
      GeluInPlace(y);
      for (const float value : y) EXPECT_TRUE(std::isnan(value));
    }
  }
}

TEST_P(SoftCapTest, MatchesTanhAndKeepsNan) {
  for (const int size : kRowSizes) {
    for (const float cap : {1.0f, 30.0f, 50.0f}) {
      const std::vector<float> x = NormalFloats(size, size, 40);
      std::vector<float> y = x;
      SoftCapInPlace(cap, y);
      for (int i = 0; i < size; ++i) {
        const double expected = cap * std::tanh(double{x[i]} / cap);
        ASSERT_NEAR(y[i], expected, 12 * kRounding * std::abs(expected))
            << x[i];
      }
      std::vector<float> specials(size, NAN);
      SoftCapInPlace(cap, specials);
      for (const float value : specials) EXPECT_TRUE(std::isnan(value));
      for (const float sign : {1.0f, -1.0f}) {
        std::vector<float> infinite(size, sign * INFINITY);
        SoftCapInPlace(cap, infinite);
        EXPECT_EQ(infinite, std::vector<float>(size, sign * cap));
      }
    }
  }
}

TEST_P(RowsTest, ABiasIsAddedToEachRowAndAFactorToEachNumber) {
  for (const int size : kRowSizes) {
    const std::vector<float> bias = NormalFloats(size, 1);
    const std::vector<float> x = NormalFloats(3 * size, 2);
    std::vector<float> y = x;
    AddToRows(bias, y);
    for (int i = 0; i < 3 * size; ++i) EXPECT_EQ(y[i], x[i] + bias[i % size]);
    y = x;
    ScaleInPlace(1.7f, y);
    for (int i = 0; i < 3 * size; ++i) EXPECT_EQ(y[i], x[i] * 1.7f);
  }
}

TEST_P(PartialRotaryTest, TurnsTheFirstDimensionsAndScalesThem) {
  constexpr int kHeadDim = 24, kHalf = 5;  // 10 of 24 are rotated
  const std::vector<double> frequencies = {1, 0.3, 0.1, 0.03, 0.01};
  const RotaryTable table(frequencies, 100, 1.25);
  const std::vector<float> x = NormalFloats(3 * kHeadDim, 3);
  std::vector<float> y = x;
  table.Rotate(y, 3, 71);
  for (int i = 0; i < 3 * kHeadDim; ++i) {
    const int dim = i % kHeadDim;
    if (dim >= 2 * kHalf) {
      EXPECT_EQ(y[i], x[i]);
      continue;
    }
    const double angle = 71 * frequencies[dim % kHalf];
    const int other = dim < kHalf ? i + kHalf : i - kHalf;
    const double turned = x[i] * std::cos(angle) +
                          (dim < kHalf ? -1 : 1) * x[other] * std::sin(angle);
    EXPECT_NEAR(y[i], 1.25 * turned, 1e-6);
  }
}

}  // namespace
}  // namespace espalier

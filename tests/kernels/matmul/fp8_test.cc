// e4m3 numbers, and quantization of weights.
#include "kernels/matmul/fp8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/float_limits.h"
#include "kernels/matmul/fp8_order.h"

namespace espalier {
namespace {

// Returns the nearest code, ties to even, by trying all.
uint8_t NearestCode(float value) {
  double best = kInf;
  uint8_t found = 0;
  for (int code = 0; code < 128; ++code) {
    if (IsFp8Nan(static_cast<uint8_t>(code))) continue;
    const double distance = std::abs(
        double{FloatFromFp8(static_cast<uint8_t>(code))} - std::abs(value));
    if (distance < best || (distance == best && code % 2 == 0)) {
      best = distance;
      found = static_cast<uint8_t>(code);
    }
  }
  return std::signbit(value) ? found | 0x80 : found;
}

TEST(Fp8Test, NumbersAreThoseOfTheFormat) {
  EXPECT_EQ(FloatFromFp8(0x00), 0.0f);
  EXPECT_TRUE(std::signbit(FloatFromFp8(0x80)));
  EXPECT_EQ(FloatFromFp8(0x01), 0x1p-9f);  // the smallest
  EXPECT_EQ(FloatFromFp8(0x07), 0x7p-9f);  // the largest subnormal
  EXPECT_EQ(FloatFromFp8(0x08), 0x1p-6f);  // the smallest normal
  EXPECT_EQ(FloatFromFp8(0x38), 1.0f);
  EXPECT_EQ(FloatFromFp8(0xBC), -1.5f);
  EXPECT_EQ(FloatFromFp8(0x7E), 448.0f);
  EXPECT_EQ(FloatFromFp8(0xFE), -448.0f);
  EXPECT_TRUE(std::isnan(FloatFromFp8(0x7F)));
  EXPECT_TRUE(std::isnan(FloatFromFp8(0xFF)));
  for (int code = 1; code < 0x7F; ++code) {
    EXPECT_GT(FloatFromFp8(static_cast<uint8_t>(code)),
              FloatFromFp8(static_cast<uint8_t>(code - 1)));
  }
}

TEST(Fp8Test, EveryCodeComesBack) {
  for (int code = 0; code < 256; ++code) {
    const auto given = static_cast<uint8_t>(code);
    if (IsFp8Nan(given)) {
      EXPECT_TRUE(IsFp8Nan(Fp8FromFloat(FloatFromFp8(given))));
    } else {
      EXPECT_EQ(Fp8FromFloat(FloatFromFp8(given)), given);
    }
  }
}

// Halfway between two codes, next to it, and anywhere.
TEST(Fp8Test, TheNearestIsTakenAndOfTwoTheEven) {
  for (int code = 0; code < 0x7E; ++code) {
    const float low = FloatFromFp8(static_cast<uint8_t>(code));
    const float high = FloatFromFp8(static_cast<uint8_t>(code + 1));
    const float middle = (low + high) / 2;
    for (const float value :
         {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      EXPECT_EQ(Fp8FromFloat(value), NearestCode(value)) << value;
      EXPECT_EQ(Fp8FromFloat(-value), NearestCode(-value)) << -value;
    }
  }
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(value)) continue;
    ASSERT_EQ(Fp8FromFloat(value), NearestCode(value)) << value;
  }
}

TEST(Fp8Test, WhatIsTooLargeIsTheLargest) {
  for (const float value : {448.0f, 463.0f, 464.0f, 480.0f, 1e30f, kInf}) {
    EXPECT_EQ(Fp8FromFloat(value), 0x7E) << value;
    EXPECT_EQ(Fp8FromFloat(-value), 0xFE) << value;
  }
  EXPECT_TRUE(IsFp8Nan(Fp8FromFloat(kNan)));
}

TEST(Fp8Test, BFloat16IsTheNearestAndOfTwoTheEven) {
  EXPECT_EQ(RoundToBFloat16(1 + 0x1p-8f), 1.0f);
  EXPECT_EQ(RoundToBFloat16(1 + 0x3p-8f), 1 + 0x1p-6f);
  EXPECT_EQ(RoundToBFloat16(1 + 0x1p-8f + 0x1p-20f), 1 + 0x1p-7f);
  EXPECT_EQ(RoundToBFloat16(-1 - 0x1p-9f), -1.0f);
  EXPECT_EQ(RoundToBFloat16(0x1p-133f), 0x1p-133f);  // the smallest
  EXPECT_EQ(RoundToBFloat16(0x1p-135f), 0.0f);
  EXPECT_TRUE(std::isnan(RoundToBFloat16(kNan)));
}

TEST(Fp8Test, ScalesAreTheLargestOver448AsBFloat16) {
  EXPECT_EQ(Fp8Scale(std::vector<float>{1.0f, -448.0f, 3.0f}), 1.0f);
  EXPECT_EQ(Fp8Scale(std::vector<float>{0.0f, -0.0f}), 0.0f);
  EXPECT_EQ(Fp8Scale(std::vector<float>{0x1p-101f}), 0.0f);
  EXPECT_EQ(Fp8Scale(std::vector<float>{0x1p-100f}),
            RoundToBFloat16(0x1p-100f / 448));
  for (const float bad : {kInf, -kInf, kNan}) {
    EXPECT_TRUE(std::isnan(Fp8Scale(std::vector<float>{1.0f, bad, 2.0f})));
  }
}

// A quantized number is within half a unit in the last place of the original,
// for bfloat16 also after its product with the scale.
TEST(Fp8Test, QuantizedWeightsStandForNumbersNearTheirOwn) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int row = 0; row < 50; ++row) {
    const float size = std::exp2(static_cast<float>(row - 25));
    std::vector<float> weights(96);
    for (float& weight : weights) weight = size * normal(random);
    const float scale = Fp8Scale(weights);
    std::vector<uint8_t> codes(weights.size());
    QuantizeFp8(weights, scale, codes.data());
    for (size_t i = 0; i < weights.size(); ++i) {
      const float near = DequantizeFp8(codes[i], scale);
      const float unit =
          std::max(std::abs(weights[i]) * 0x1p-4f, scale * 0x1p-10f);
      ASSERT_NEAR(near, weights[i], unit + std::abs(weights[i]) * 0x1p-7f);
    }
    EXPECT_GE(*std::ranges::max_element(
                  codes, {}, [](uint8_t code) { return code & 0x7F; }) &
                  0x7F,
              0x7D);
  }
}

TEST(Fp8Test, WeightsOfNoSizeAreZeros) {
  const std::vector<float> weights = {0x1p-120f, -0x1p-110f, 0.0f};
  std::vector<uint8_t> codes(3, 0xFF);
  QuantizeFp8(weights, Fp8Scale(weights), codes.data());
  EXPECT_EQ(codes, std::vector<uint8_t>(3, 0));
}

TEST(Fp8Test, TheOrderOfABlockHasAPlaceForEveryWeight) {
  constexpr int kInputs = 3 * kFp8RunInputs;
  std::vector<int> counts(kFp8BlockOutputs * kInputs);
  for (int output = 0; output < kFp8BlockOutputs; ++output) {
    for (int input = 0; input < kInputs; ++input) {
      const size_t at = Fp8Offset(output, input);
      ASSERT_LT(at, counts.size());
      ++counts[at];
      // A run is one piece, and in it an output's inputs are.
      EXPECT_EQ(at / kFp8RunBytes, input / kFp8RunInputs);
      EXPECT_EQ(at % kFp8RunBytes / kFp8RunInputs, output);
    }
  }
  EXPECT_TRUE(std::ranges::all_of(counts, [](int n) { return n == 1; }));
}

}  // namespace
}  // namespace espalier

#include "kernels/matmul/fp8.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace espalier {
namespace {

constexpr float kSmallestMagnitude = 0x1p-100f;
constexpr float kSmallestNormal = 0x1p-6f;

std::array<float, 256> AllFp8() {
  std::array<float, 256> values;
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15;
    const int mantissa = code & 7;
    // Subnormal numbers have the exponent of the smallest normal ones.
    const float magnitude =
        exponent == 0
            ? std::ldexp(static_cast<float>(mantissa), -9)
            : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    values[code] = IsFp8Nan(code) ? std::numeric_limits<float>::quiet_NaN()
                   : code < 128   ? magnitude
                                  : -magnitude;
  }
  return values;
}

// Half of the last kept place, less one unit if that is even: ties go to even.
uint32_t RoundedBits(float value, int num_dropped) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t half = uint32_t{1} << (num_dropped - 1);
  return (bits + half - 1 + (bits >> num_dropped & 1)) >> num_dropped;
}

}  // namespace

uint8_t Fp8FromFloat(float value) {
  if (std::isnan(value)) return kFp8Nan;
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const float magnitude = std::min(std::abs(value), kMaxFp8);
  if (magnitude < kSmallestNormal) {
    // In units of 2^-9. Eight of them are the smallest normal number, whose
    // code is eight.
    return sign | static_cast<uint8_t>(std::nearbyint(magnitude * 0x1p9f));
  }
  constexpr int kDropped = 23 - 3;
  constexpr uint32_t kBiasDifference = 127 - 7;
  return sign | static_cast<uint8_t>(RoundedBits(magnitude, kDropped) -
                                     (kBiasDifference << 3));
}

float FloatFromFp8(uint8_t code) {
  static const std::array<float, 256> values = AllFp8();
  return values[code];
}

float RoundToBFloat16(float value) {
  if (!std::isfinite(value)) return value;
  return std::bit_cast<float>(RoundedBits(value, 16) << 16);
}

float Fp8Scale(std::span<const float> weights) {
  float largest = 0;
  for (const float weight : weights) {
    if (!std::isfinite(weight)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::abs(weight));
  }
  return largest < kSmallestMagnitude ? 0 : RoundToBFloat16(largest / kMaxFp8);
}

void QuantizeFp8(std::span<const float> weights, float scale, uint8_t* codes) {
  if (scale == 0) {
    std::fill_n(codes, weights.size(), uint8_t{0});
    return;
  }
  const float inverse = 1 / scale;
  std::transform(
      weights.begin(), weights.end(), codes,
      [inverse](float weight) { return Fp8FromFloat(weight * inverse); });
}

}  // namespace espalier

#include "kernels/matmul/quantized_panel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "base/load_as_float.h"

// Compiles the rest once for each instruction set, whose loops the compiler
// vectorises; the order matters.
// clang-format off
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/quantized_panel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::HWY_NAMESPACE {

// Below this the inverse of a scale could be infinite.
constexpr float kSmallestScaled = 0x1p-100f;

// Rounds to nearest, ties to even.
uint16_t RoundToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

// Returns the number of largest magnitude, the positive one of two; NaN if a
// number is not finite.
float Extreme(std::span<const float> weights) {
  // Magnitudes have the order of their bits, with non-finite ones above all
  // others.
  int32_t most_bits = 0;
  float highest = 0;
  float lowest = 0;
  for (const float w : weights) {
    most_bits = std::max(most_bits, std::bit_cast<int32_t>(w) & 0x7FFFFFFF);
    highest = w > highest ? w : highest;
    lowest = w < lowest ? w : lowest;
  }
  if (most_bits >= 0x7F800000) return std::numeric_limits<float>::quiet_NaN();
  return highest >= -lowest ? highest : lowest;
}

uint16_t ScaleOf(std::span<const float> weights, WeightFormat format) {
  if (weights.empty()) return 0;
  const bool is_int4 = format == WeightFormat::kInt4;
  const float extreme = Extreme(weights);
  if (std::abs(extreme) < kSmallestScaled) return 0;
  return RoundToBFloat16(is_int4 ? extreme / -8.0f
                                 : std::abs(extreme) / 127.0f);
}

// Writes the codes of one output; codes past the weights get q = 0.
void QuantizeRow(std::span<const float> weights, float scale,
                 WeightFormat format, std::span<uint8_t> codes) {
  const bool is_int4 = format == WeightFormat::kInt4;
  const float low = is_int4 ? -8.0f : -127.0f;
  const float high = is_int4 ? 7.0f : 127.0f;
  const int offset = QuantOffset(format);
  std::ranges::fill(codes, static_cast<uint8_t>(offset));
  if (scale == 0 || std::isnan(scale)) return;
  const float inverse = 1.0f / scale;
  // Adding 1.5 * 2^23 rounds to the nearest integer, in the lowest bits; unlike
  // std::nearbyint it vectorises.
  constexpr float kRounder = 0x1.8p23f;
  for (size_t k = 0; k < weights.size(); ++k) {
    const float q = std::clamp(weights[k] * inverse, low, high) + kRounder;
    codes[k] = static_cast<uint8_t>(std::bit_cast<uint32_t>(q) + offset);
  }
}

void QuantizeGroup(const float* weights, int num_rows, int depth, int stride,
                   WeightFormat format, std::byte* out) {
  const bool is_int4 = format == WeightFormat::kInt4;
  const int padded = PaddedDepth(depth);
  std::byte* const scales =
      out + QuantGroupBytes(format, depth) - 2 * kPanelWidth;
  for (int row = 0; row < kPanelWidth; ++row) {
    std::span<const float> w;
    if (row < num_rows) w = std::span(weights + size_t(row) * stride, depth);
    const uint16_t scale = ScaleOf(w, format);
    uint8_t codes[kMaxQuantGroupSize];
    QuantizeRow(w, BFloat16ToFloat(scale), format, std::span(codes, padded));
    std::memcpy(scales + 2 * row, &scale, 2);
    std::byte* to = out + 4 * row;
    for (int k = 0; k < padded; k += is_int4 ? 8 : 4) {
      uint32_t quad;
      std::memcpy(&quad, codes + k, 4);
      if (is_int4) {
        uint32_t next;
        std::memcpy(&next, codes + k + 4, 4);
        quad |= next << 4;
      }
      std::memcpy(to, &quad, 4);
      to += 4 * kPanelWidth;
    }
  }
}

}  // namespace espalier::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier {

HWY_EXPORT(QuantizeGroup);

void QuantizeGroup(const float* weights, int num_rows, int depth, int stride,
                   WeightFormat format, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(QuantizeGroup)
  (weights, num_rows, depth, stride, format, out);
}

}  // namespace espalier
#endif  // HWY_ONCE

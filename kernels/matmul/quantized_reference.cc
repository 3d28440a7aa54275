#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/float_limits.h"
#include "kernels/matmul/matmul.h"

// Follows weight_format.h line by line.
namespace espalier::reference {
namespace {

constexpr float kSmallest = 0x1p-100f;

struct Quantized {
  float scale = 0;
  std::vector<float> integers;
};

float BFloat16(float value) {
  // Half of the last kept place, less one unit if that is even: ties go to
  // even.
  uint32_t bits = std::bit_cast<uint32_t>(value);
  bits += 0x7FFFu + (bits >> 16) % 2;
  return std::bit_cast<float>(bits & 0xFFFF0000u);
}

float Extreme(std::span<const float> numbers) {
  float extreme = 0;
  for (const float number : numbers) {
    if (!std::isfinite(number)) return kNan;
    const bool is_larger = std::abs(number) > std::abs(extreme);
    const bool is_positive_one = number == -extreme && number > 0;
    if (is_larger || is_positive_one) extreme = number;
  }
  return extreme;
}

Quantized Divide(std::span<const float> numbers, float scale, float inverse,
                 float low, float high) {
  Quantized result{scale, std::vector<float>(numbers.size())};
  if (scale == 0 || std::isnan(scale)) return result;
  for (size_t i = 0; i < numbers.size(); ++i) {
    result.integers[i] =
        std::clamp(std::nearbyint(numbers[i] * inverse), low, high);
  }
  return result;
}

Quantized QuantizeWeights(std::span<const float> w, WeightFormat format) {
  const float extreme = Extreme(w);
  const bool is_int4 = format == WeightFormat::kInt4;
  float scale = 0;
  if (std::isnan(extreme)) {
    scale = kNan;
  } else if (std::abs(extreme) >= kSmallest) {
    scale = BFloat16(is_int4 ? extreme / -8 : std::abs(extreme) / 127);
  }
  return Divide(w, scale, 1 / scale, is_int4 ? -8 : -127, is_int4 ? 7 : 127);
}

Quantized QuantizeInputs(std::span<const float> x) {
  const float largest = std::abs(Extreme(x));
  if (std::isnan(largest)) return Divide(x, kNan, 0, 0, 0);
  const float scale = largest < kSmallest ? 0 : largest / 127;
  return Divide(x, scale, 127 / largest, -127, 127);
}

}  // namespace

std::vector<float> QuantizedMatMul(std::span<const float> x,
                                   std::span<const float> w, int num_cols,
                                   WeightFormat format) {
  const size_t num_rows = w.size() / num_cols;
  const size_t n = x.size() / num_cols;
  const size_t group = QuantGroupSize(format);
  std::vector<float> y(n * num_rows);
  for (size_t i = 0; i < y.size(); ++i) {
    const auto x_row = x.subspan(i / num_rows * num_cols, num_cols);
    const auto w_row = w.subspan(i % num_rows * num_cols, num_cols);
    for (size_t begin = 0; begin < x_row.size(); begin += group) {
      const size_t size = std::min(group, x_row.size() - begin);
      const Quantized qx = QuantizeInputs(x_row.subspan(begin, size));
      const Quantized qw = QuantizeWeights(w_row.subspan(begin, size), format);
      double sum = 0;
      for (size_t k = 0; k < size; ++k) {
        sum += double{qw.integers[k]} * double{qx.integers[k]};
      }
      y[i] += qw.scale * static_cast<float>(sum) * qx.scale;
    }
  }
  return y;
}

}  // namespace espalier::reference

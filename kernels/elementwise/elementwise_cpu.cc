#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/elementwise_rows.h"

namespace espalier {

void RmsNorm(std::span<const float> x, std::span<const float> weight,
             float epsilon, std::span<float> out) {
  CHECK_EQ(x.size(), out.size());
  CHECK_EQ(x.size() % weight.size(), 0u);
  const int size = static_cast<int>(weight.size());
  for (size_t i = 0; i < x.size(); i += size) {
    RmsNormRow(&x[i], weight.data(), size, epsilon, &out[i]);
  }
}

void LayerNorm(std::span<const float> x, std::span<const float> weight,
               std::span<const float> bias, float epsilon,
               std::span<float> out) {
  CHECK_EQ(x.size(), out.size());
  CHECK_EQ(x.size() % weight.size(), 0u);
  CHECK_EQ(weight.size(), bias.size());
  const int size = static_cast<int>(weight.size());
  for (size_t i = 0; i < x.size(); i += size) {
    LayerNormRow(&x[i], weight.data(), bias.data(), size, epsilon, &out[i]);
  }
}

RotaryTable::RotaryTable(std::span<const double> inverse_frequencies,
                         int num_positions, double scale)
    : half_dim_(static_cast<int>(inverse_frequencies.size())) {
  cos_.reserve(size_t(num_positions) * half_dim_);
  sin_.reserve(size_t(num_positions) * half_dim_);
  for (int position = 0; position < num_positions; ++position) {
    for (const double frequency : inverse_frequencies) {
      const double angle = position * frequency;
      cos_.push_back(static_cast<float>(scale * std::cos(angle)));
      sin_.push_back(static_cast<float>(scale * std::sin(angle)));
    }
  }
}

void RotaryTable::Rotate(std::span<float> x, int num_heads,
                         int position) const {
  const size_t head_dim = x.size() / num_heads;
  CHECK_EQ(x.size() % num_heads, 0u);
  CHECK_GE(head_dim, size_t(2) * half_dim_);
  const size_t row = size_t(position) * half_dim_;
  CHECK_LE(row + half_dim_, cos_.size());
  for (int head = 0; head < num_heads; ++head) {
    RotateRow(&cos_[row], &sin_[row], half_dim_, &x[head * head_dim]);
  }
}

void SiluMul(std::span<const float> gate_up, int size, std::span<float> out) {
  CHECK_EQ(gate_up.size(), 2 * out.size());
  CHECK_EQ(out.size() % size, 0u);
  for (size_t i = 0; i < out.size(); i += size) {
    const float* gate = &gate_up[2 * i];
    SiluMulRow(gate, gate + size, size, &out[i]);
  }
}

void GeluMul(std::span<const float> gate_up, int size, std::span<float> out) {
  CHECK_EQ(gate_up.size(), 2 * out.size());
  CHECK_EQ(out.size() % size, 0u);
  for (size_t i = 0; i < out.size(); i += size) {
    const float* gate = &gate_up[2 * i];
    GeluMulRow(gate, gate + size, size, &out[i]);
  }
}

void GeluInPlace(std::span<float> x) {
  GeluRow(static_cast<int>(x.size()), x.data());
}

void SiluInPlace(std::span<float> x) {
  SiluRow(static_cast<int>(x.size()), x.data());
}

void ExactGeluInPlace(std::span<float> x) {
  constexpr float kRootOfHalf = 0.70710678118654752f;
  for (float& value : x) {
    value = 0.5f * value * (1.0f + std::erf(value * kRootOfHalf));
  }
}

// NaN stays NaN.
void ReluInPlace(std::span<float> x) {
  for (float& value : x) value = value < 0.0f ? 0.0f : value;
}

void AddInPlace(std::span<const float> y, std::span<float> x) {
  CHECK_EQ(y.size(), x.size());
  AddRow(y.data(), static_cast<int>(y.size()), x.data());
}

void AddToRows(std::span<const float> bias, std::span<float> x) {
  CHECK_EQ(x.size() % bias.size(), 0u);
  for (size_t i = 0; i < x.size(); i += bias.size()) {
    AddRow(bias.data(), static_cast<int>(bias.size()), &x[i]);
  }
}

void ScaleInPlace(float factor, std::span<float> x) {
  ScaleRow(factor, static_cast<int>(x.size()), x.data());
}

void SoftCapInPlace(float cap, std::span<float> x) {
  SoftCapRow(cap, static_cast<int>(x.size()), x.data());
}

}  // namespace espalier

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

RotaryTable::RotaryTable(std::span<const double> inverse_frequencies,
                         int num_positions)
    : half_dim_(static_cast<int>(inverse_frequencies.size())) {
  cos_.reserve(size_t(num_positions) * half_dim_);
  sin_.reserve(size_t(num_positions) * half_dim_);
  for (int position = 0; position < num_positions; ++position) {
    for (const double frequency : inverse_frequencies) {
      cos_.push_back(static_cast<float>(std::cos(position * frequency)));
      sin_.push_back(static_cast<float>(std::sin(position * frequency)));
    }
  }
}

void RotaryTable::Rotate(std::span<float> x, int num_heads,
                         int position) const {
  CHECK_EQ(x.size(), size_t(num_heads) * 2 * half_dim_);
  const size_t row = size_t(position) * half_dim_;
  CHECK_LE(row + half_dim_, cos_.size());
  for (int head = 0; head < num_heads; ++head) {
    RotateRow(&cos_[row], &sin_[row], half_dim_, &x[head * 2 * half_dim_]);
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

void AddInPlace(std::span<const float> y, std::span<float> x) {
  CHECK_EQ(y.size(), x.size());
  AddRow(y.data(), static_cast<int>(y.size()), x.data());
}

}  // namespace espalier

#include <cmath>
#include <numbers>

#include "kernels/elementwise/elementwise.h"

namespace espalier::reference {

std::vector<double> RmsNorm(std::span<const float> x,
                            std::span<const float> weight, double epsilon) {
  const size_t size = weight.size();
  std::vector<double> out(x.size());
  for (size_t row = 0; row < x.size(); row += size) {
    double sum = 0;
    for (size_t i = 0; i < size; ++i) sum += double{x[row + i]} * x[row + i];
    const double rms = std::sqrt(sum / size + epsilon);
    for (size_t i = 0; i < size; ++i) {
      out[row + i] = x[row + i] / rms * weight[i];
    }
  }
  return out;
}

std::vector<double> LayerNorm(std::span<const float> x,
                              std::span<const float> weight,
                              std::span<const float> bias, double epsilon) {
  const size_t size = weight.size();
  std::vector<double> out(x.size());
  for (size_t row = 0; row < x.size(); row += size) {
    double sum = 0;
    for (size_t i = 0; i < size; ++i) sum += double{x[row + i]};
    const double mean = sum / size;
    double squares = 0;
    for (size_t i = 0; i < size; ++i) {
      squares += (x[row + i] - mean) * (x[row + i] - mean);
    }
    const double deviation = std::sqrt(squares / size + epsilon);
    for (size_t i = 0; i < size; ++i) {
      out[row + i] = (x[row + i] - mean) / deviation * weight[i] + bias[i];
    }
  }
  return out;
}

double Gelu(double x) {
  const double slope = std::sqrt(2 / std::numbers::pi);
  return x / 2 * (1 + std::tanh(slope * (x + 0.044715 * x * x * x)));
}

double Silu(double x) { return x / (1.0 + std::exp(-x)); }

double ExactGelu(double x) {
  return x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
}

std::vector<double> GeluMul(std::span<const float> gate_up, int size) {
  std::vector<double> out;
  for (size_t row = 0; row < gate_up.size(); row += 2 * size) {
    for (int i = 0; i < size; ++i) {
      out.push_back(Gelu(gate_up[row + i]) * gate_up[row + size + i]);
    }
  }
  return out;
}

std::vector<double> SiluMul(std::span<const float> gate_up, int size) {
  std::vector<double> out;
  for (size_t row = 0; row < gate_up.size(); row += 2 * size) {
    for (int i = 0; i < size; ++i) {
      const double gate = gate_up[row + i];
      const double up = gate_up[row + size + i];
      out.push_back(gate / (1.0 + std::exp(-gate)) * up);
    }
  }
  return out;
}

}  // namespace espalier::reference

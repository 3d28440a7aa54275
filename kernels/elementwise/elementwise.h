// The small kernels of a transformer's layer, on float32 rows. Each output
// depends on its own row only, in a fixed order of operations. They run on the
// caller's thread; a caller with many rows divides them.
//
// NaN and infinities propagate as in the formulas: nothing is dropped, and a
// NaN in an input is a NaN in every output that depends on it.
#pragma once

#include <span>
#include <vector>

namespace espalier {

// out = x / sqrt(mean(x^2) + epsilon) * weight, row by row.
//   x, out  [n, weight.size()]; may be the same memory
// A NaN makes its row NaN. In a row with an infinity, infinite elements become
// NaN and finite ones 0, as when the sum of squares overflows float32.
void RmsNorm(std::span<const float> x, std::span<const float> weight,
             float epsilon, std::span<float> out);

// out = (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias, row by
// row. The variance divides by the number of elements.
//   x, out  [n, weight.size()]; may be the same memory
// A NaN or an infinity makes its row NaN.
// REQUIRES: bias.size() == weight.size().
void LayerNorm(std::span<const float> x, std::span<const float> weight,
               std::span<const float> bias, float epsilon,
               std::span<float> out);

// Rotary position embedding in the half-split layout: in the first rotary_dim
// dimensions of a head, dimension i pairs with i + rotary_dim / 2. Immutable
// after construction.
class RotaryTable {
 public:
  RotaryTable() = default;
  // Computes cos and sin of position * inverse_frequencies[i], for all
  // positions, times `scale`.
  //   inverse_frequencies  [rotary_dim / 2]
  RotaryTable(std::span<const double> inverse_frequencies, int num_positions,
              double scale = 1.0);

  // Rotates `num_heads` heads in place.
  //   x  [num_heads, head_dim]
  // A NaN makes both numbers of its pair NaN.
  // REQUIRES: 0 <= position < num_positions; rotary_dim <= head_dim.
  void Rotate(std::span<float> x, int num_heads, int position) const;

  // [num_positions, rotary_dim / 2] each.
  std::span<const float> cosines() const { return cos_; }
  std::span<const float> sines() const { return sin_; }

 private:
  int half_dim_ = 0;
  std::vector<float> cos_;  // [num_positions, half_dim]
  std::vector<float> sin_;
};

// out = silu(gate) * up, where silu(x) = x / (1 + exp(-x)).
//   gate_up  [n, 2 * size]: a row's gates, then its ups
//   out      [n, size]
// silu(+inf) is +inf, silu(-inf) NaN (-inf * 0). Below -104 silu is 0, so that
// an infinite `up` gives NaN there.
void SiluMul(std::span<const float> gate_up, int size, std::span<float> out);

// As SiluMul with gelu in its tanh form, which is
//   gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
// gelu(+inf) is +inf, gelu(-inf) NaN.
void GeluMul(std::span<const float> gate_up, int size, std::span<float> out);

// x = gelu(x).
void GeluInPlace(std::span<float> x);

// x = silu(x): silu(-inf) is NaN.
void SiluInPlace(std::span<float> x);

// x = x / 2 * (1 + erf(x / sqrt(2))): the exact gelu. gelu(-inf) is NaN.
void ExactGeluInPlace(std::span<float> x);

// x = max(x, 0).
void ReluInPlace(std::span<float> x);

// x += y.
void AddInPlace(std::span<const float> y, std::span<float> x);

// Adds `bias` to each row of x.
//   x  [n, bias.size()]
void AddToRows(std::span<const float> bias, std::span<float> x);

// x *= factor.
void ScaleInPlace(float factor, std::span<float> x);

// x = cap * tanh(x / cap).
// REQUIRES: cap > 0.
void SoftCapInPlace(float cap, std::span<float> x);

namespace reference {

std::vector<double> RmsNorm(std::span<const float> x,
                            std::span<const float> weight, double epsilon);
std::vector<double> LayerNorm(std::span<const float> x,
                              std::span<const float> weight,
                              std::span<const float> bias, double epsilon);
std::vector<double> SiluMul(std::span<const float> gate_up, int size);
std::vector<double> GeluMul(std::span<const float> gate_up, int size);
double Gelu(double x);
double Silu(double x);
double ExactGelu(double x);

}  // namespace reference
}  // namespace espalier

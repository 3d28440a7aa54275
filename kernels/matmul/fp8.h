// Weights in eight bits, as floating point: OCP's e4m3 (sign, four bits of
// exponent, three of mantissa; +-448 are the largest, S.1111.111 is NaN, there
// are no infinities), with one scale for all inputs of an output.
//
//   s = bf16(max |w| / 448)         of an output
//   q = e4m3(w * (1 / s))           1 / s and the product in float32; beyond
//                                   +-448 they are +-448
//   w stands for bf16(q * s)        from then on
//
// Rounding is to the nearest, ties to even, everywhere. An output whose weights
// are all smaller than 2^-100 has zeros for q and s. So a product with these
// weights equals one with bfloat16 weights. A kernel may keep the codes and
// widen them to bf16(q * s) as it loads them, or once, on any device and with
// any number of rows.
//
// Source of the format: OCP 8-bit Floating Point Specification, revision 1.0;
// Micikevicius et al. 2022, https://arxiv.org/abs/2209.05433.
#pragma once

#include <cstdint>
#include <span>

namespace espalier {

inline constexpr float kMaxFp8 = 448;
inline constexpr uint8_t kFp8Nan = 0x7F;  // and with the sign bit

// Rounds to the nearest code, +-448 beyond it; NaN gives NaN.
uint8_t Fp8FromFloat(float value);
// Exact.
float FloatFromFp8(uint8_t code);
constexpr bool IsFp8Nan(uint8_t code) { return (code & kFp8Nan) == kFp8Nan; }

// Returns the nearest bfloat16, as float32.
float RoundToBFloat16(float value);

// Returns the scale of an output with these weights; NaN if one is not finite.
float Fp8Scale(std::span<const float> weights);

// Encodes an output's weights.
// REQUIRES: `scale` is Fp8Scale(weights), not NaN.
//   codes  [weights.size()]  out
void QuantizeFp8(std::span<const float> weights, float scale, uint8_t* codes);

// Returns the weight that a code stands for.
inline float DequantizeFp8(uint8_t code, float scale) {
  return RoundToBFloat16(FloatFromFp8(code) * scale);
}

}  // namespace espalier

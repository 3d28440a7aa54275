// The SIMD cores of elementwise.h: one row each.
#pragma once

namespace espalier {

//   x, weight, out  [size]
void RmsNormRow(const float* x, const float* weight, int size, float epsilon,
                float* out);

//   gate, up, out  [size]
void SiluMulRow(const float* gate, const float* up, int size, float* out);

//   cosines, sines  [half_dim]
//   x               [2 * half_dim], in place
void RotateRow(const float* cosines, const float* sines, int half_dim,
               float* x);

//   y, x  [size], x in place
void AddRow(const float* y, int size, float* x);

}  // namespace espalier

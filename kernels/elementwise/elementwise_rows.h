// The SIMD cores of elementwise.h: one row each.
#pragma once

namespace espalier {

//   x, weight, out  [size]
void RmsNormRow(const float* x, const float* weight, int size, float epsilon,
                float* out);

//   x, weight, bias, out  [size]
void LayerNormRow(const float* x, const float* weight, const float* bias,
                  int size, float epsilon, float* out);

//   gate, up, out  [size]
void SiluMulRow(const float* gate, const float* up, int size, float* out);
void GeluMulRow(const float* gate, const float* up, int size, float* out);

//   x  [size], in place
void GeluRow(int size, float* x);
void SiluRow(int size, float* x);
void ScaleRow(float factor, int size, float* x);
void SoftCapRow(float cap, int size, float* x);

//   cosines, sines  [half_dim]
//   x               [2 * half_dim], in place
void RotateRow(const float* cosines, const float* sines, int half_dim,
               float* x);

//   y, x  [size], x in place
void AddRow(const float* y, int size, float* x);

}  // namespace espalier

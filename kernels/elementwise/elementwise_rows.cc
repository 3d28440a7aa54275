#include "kernels/elementwise/elementwise_rows.h"

#include <cmath>

// Compiles the rest once for each instruction set; the order matters.
// clang-format off
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise/elementwise_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
// Numbers past the last full vector, one at a time.
using OneFloat = hn::CappedTag<float, 1>;

// Calls body(tag, i) for vectors of numbers [0, size), the last ones singly.
template <typename Body>
HWY_INLINE void ForEachVector(int size, const Body& body) {
  const int lanes = hn::MaxLanes(Floats());
  int i = 0;
  for (; i + lanes <= size; i += lanes) body(Floats(), i);
  for (; i < size; ++i) body(OneFloat(), i);
}

// Four sums, so that additions need not wait for each other.
float SumOfSquares(const float* x, int size) {
  const Floats d;
  const int lanes = hn::MaxLanes(d);
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  int i = 0;
  for (; i + 4 * lanes <= size; i += 4 * lanes) {
    const auto x0 = hn::LoadU(d, x + i);
    const auto x1 = hn::LoadU(d, x + i + lanes);
    const auto x2 = hn::LoadU(d, x + i + 2 * lanes);
    const auto x3 = hn::LoadU(d, x + i + 3 * lanes);
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
    sum2 = hn::MulAdd(x2, x2, sum2);
    sum3 = hn::MulAdd(x3, x3, sum3);
  }
  const auto sums = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < size; ++i) sum += x[i] * x[i];
  return sum;
}

void RmsNormRow(const float* x, const float* weight, int size, float epsilon,
                float* out) {
  const float mean = SumOfSquares(x, size) / static_cast<float>(size);
  const float factor = 1.0f / std::sqrt(mean + epsilon);
  ForEachVector(size, [=](auto d, int i) HWY_ATTR {
    const auto scaled = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor));
    hn::StoreU(hn::Mul(scaled, hn::LoadU(d, weight + i)), d, out + i);
  });
}

float SumOf(const float* x, int size) {
  const Floats d;
  const int lanes = hn::MaxLanes(d);
  auto sums = hn::Zero(d);
  int i = 0;
  for (; i + lanes <= size; i += lanes) {
    sums = hn::Add(sums, hn::LoadU(d, x + i));
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < size; ++i) sum += x[i];
  return sum;
}

// The mean is subtracted first, so that squares of small deviations from a
// large mean keep their digits.
void LayerNormRow(const float* x, const float* weight, const float* bias,
                  int size, float epsilon, float* out) {
  const float mean = SumOf(x, size) / static_cast<float>(size);
  ForEachVector(size, [=](auto d, int i) HWY_ATTR {
    hn::StoreU(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean)), d, out + i);
  });
  const float variance = SumOfSquares(out, size) / static_cast<float>(size);
  const float factor = 1.0f / std::sqrt(variance + epsilon);
  ForEachVector(size, [=](auto d, int i) HWY_ATTR {
    const auto scaled = hn::Mul(hn::LoadU(d, out + i), hn::Set(d, factor));
    const auto weighted = hn::Mul(scaled, hn::LoadU(d, weight + i));
    hn::StoreU(hn::Add(weighted, hn::LoadU(d, bias + i)), d, out + i);
  });
}

// 1 / (1 + exp(-x)), by exp of arguments <= 0 only, so that nothing overflows.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V t = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const V numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), t, one);
  return hn::Div(numerator, hn::Add(one, t));
}

// silu(x) = x * sigmoid(x).
void SiluMulRow(const float* gate, const float* up, int size, float* out) {
  ForEachVector(size, [=](auto d, int i) HWY_ATTR {
    const auto x = hn::LoadU(d, gate + i);
    hn::StoreU(hn::Mul(hn::Mul(x, Sigmoid(d, x)), hn::LoadU(d, up + i)), d,
               out + i);
  });
}

// (1 + tanh(y)) / 2 is sigmoid(2 y).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Gelu(D d, V x) {
  const V slope = hn::Set(d, 1.5957691216057308f);  // 2 sqrt(2 / pi)
  const V cubic = hn::Set(d, 0.044715f * 1.5957691216057308f);
  const V y = hn::Mul(x, hn::MulAdd(hn::Mul(x, x), cubic, slope));
  return hn::Mul(x, Sigmoid(d, y));
}

void GeluMulRow(const float* gate, const float* up, int size, float* out) {
  ForEachVector(size, [=](auto d, int i) HWY_ATTR {
    const auto x = hn::LoadU(d, gate + i);
    hn::StoreU(hn::Mul(Gelu(d, x), hn::LoadU(d, up + i)), d, out + i);
  });
}

void GeluRow(int size, float* x) {
  ForEachVector(size, [=](auto d, int i) HWY_ATTR {
    hn::StoreU(Gelu(d, hn::LoadU(d, x + i)), d, x + i);
  });
}

void SiluRow(int size, float* x) {
  ForEachVector(size, [=](auto d, int i) HWY_ATTR {
    const auto value = hn::LoadU(d, x + i);
    hn::StoreU(hn::Mul(value, Sigmoid(d, value)), d, x + i);
  });
}

void ScaleRow(float factor, int size, float* x) {
  ForEachVector(size, [=](auto d, int i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), d, x + i);
  });
}

// NaN stays NaN, whatever Highway's tanh makes of it.
void SoftCapRow(float cap, int size, float* x) {
  const float inverse = 1.0f / cap;
  ForEachVector(size, [=](auto d, int i) HWY_ATTR {
    const auto scaled = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, inverse));
    const auto capped = hn::Mul(hn::Tanh(d, scaled), hn::Set(d, cap));
    hn::StoreU(hn::IfThenElse(hn::IsNaN(scaled), scaled, capped), d, x + i);
  });
}

void RotateRow(const float* cosines, const float* sines, int half_dim,
               float* x) {
  ForEachVector(half_dim, [=](auto d, int i) HWY_ATTR {
    const auto cosine = hn::LoadU(d, cosines + i);
    const auto sine = hn::LoadU(d, sines + i);
    const auto a = hn::LoadU(d, x + i);
    const auto b = hn::LoadU(d, x + half_dim + i);
    hn::StoreU(hn::Sub(hn::Mul(a, cosine), hn::Mul(b, sine)), d, x + i);
    hn::StoreU(hn::Add(hn::Mul(b, cosine), hn::Mul(a, sine)), d,
               x + half_dim + i);
  });
}

void AddRow(const float* y, int size, float* x) {
  ForEachVector(size, [=](auto d, int i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, x + i);
  });
}

}  // namespace espalier::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier {

HWY_EXPORT(RmsNormRow);
HWY_EXPORT(LayerNormRow);
HWY_EXPORT(SiluMulRow);
HWY_EXPORT(GeluMulRow);
HWY_EXPORT(GeluRow);
HWY_EXPORT(SiluRow);
HWY_EXPORT(ScaleRow);
HWY_EXPORT(SoftCapRow);
HWY_EXPORT(RotateRow);
HWY_EXPORT(AddRow);

void RmsNormRow(const float* x, const float* weight, int size, float epsilon,
                float* out) {
  HWY_DYNAMIC_DISPATCH(RmsNormRow)(x, weight, size, epsilon, out);
}
void LayerNormRow(const float* x, const float* weight, const float* bias,
                  int size, float epsilon, float* out) {
  HWY_DYNAMIC_DISPATCH(LayerNormRow)(x, weight, bias, size, epsilon, out);
}
void SiluMulRow(const float* gate, const float* up, int size, float* out) {
  HWY_DYNAMIC_DISPATCH(SiluMulRow)(gate, up, size, out);
}
void GeluMulRow(const float* gate, const float* up, int size, float* out) {
  HWY_DYNAMIC_DISPATCH(GeluMulRow)(gate, up, size, out);
}
void GeluRow(int size, float* x) { HWY_DYNAMIC_DISPATCH(GeluRow)(size, x); }
void SiluRow(int size, float* x) { HWY_DYNAMIC_DISPATCH(SiluRow)(size, x); }
void ScaleRow(float factor, int size, float* x) {
  HWY_DYNAMIC_DISPATCH(ScaleRow)(factor, size, x);
}
void SoftCapRow(float cap, int size, float* x) {
  HWY_DYNAMIC_DISPATCH(SoftCapRow)(cap, size, x);
}
void RotateRow(const float* cosines, const float* sines, int half_dim,
               float* x) {
  HWY_DYNAMIC_DISPATCH(RotateRow)(cosines, sines, half_dim, x);
}
void AddRow(const float* y, int size, float* x) {
  HWY_DYNAMIC_DISPATCH(AddRow)(y, size, x);
}

}  // namespace espalier
#endif  // HWY_ONCE

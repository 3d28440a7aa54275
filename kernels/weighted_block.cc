#include "kernels/weighted_block.h"

#include <algorithm>
#include <limits>

// Compiles what follows once for each instruction set; the order matters.
// clang-format off
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/weighted_block.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/vector_math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {

// The sum of four vectors.
HWY_INLINE double Total(Vec sum0, Vec sum1, Vec sum2, Vec sum3) {
  const Floats d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  float sums[kChunkSize] = {};  // narrower vectors leave the rest at zero
  hn::StoreU(sum0, d, sums);
  hn::StoreU(sum1, d, sums + lanes);
  hn::StoreU(sum2, d, sums + 2 * lanes);
  hn::StoreU(sum3, d, sums + 3 * lanes);
  return TotalOfChunk(sums);
}

// The sum of body(i) over a block: four sums, so that additions overlap.
template <typename Body>
HWY_INLINE double SumOver(int size, const Body& body) {
  const Floats d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  Vec sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  for (int i = 0; i < size; i += 4 * lanes) {
    sum0 = hn::Add(sum0, body(i));
    sum1 = hn::Add(sum1, body(i + lanes));
    sum2 = hn::Add(sum2, body(i + 2 * lanes));
    sum3 = hn::Add(sum3, body(i + 3 * lanes));
  }
  return Total(sum0, sum1, sum2, sum3);
}

template <bool kByDistance>
HWY_INLINE Vec Keys(Vec values, Vec low, Vec origin, Vec center) {
  if constexpr (!kByDistance) return values;
  const Floats d;
  const Vec difference = hn::Sub(hn::Sub(values, origin), center);
  const Vec keys = hn::Neg(hn::Abs(difference));
  return hn::IfThenElse(hn::Ge(values, low), keys, hn::Neg(hn::Inf(d)));
}

double Weigh(const float* HWY_RESTRICT values, int size, float max,
             float temperature, float* HWY_RESTRICT weights) {
  const Floats d;
  const Vec m = hn::Set(d, max);
  // The product with 1 / temperature in two parts: rounding that would tilt the
  // whole distribution. Where it is so large that the second part might
  // overflow, nothing but the best tokens counts.
  constexpr double kLargest = std::numeric_limits<float>::max();
  const double inverse = std::min(1.0 / temperature, kLargest);
  const float inverse_high = static_cast<float>(inverse);
  const Vec high = hn::Set(d, inverse_high);
  const Vec low = hn::Set(
      d, inverse < 1e6 ? static_cast<float>(inverse - inverse_high) : 0.0f);
  const Vec least = hn::Set(d, -1e30f);
  return SumOver(size, [&](int i) HWY_ATTR {
    const Vec difference = hn::Max(hn::Sub(hn::LoadU(d, values + i), m), least);
    const Vec x = hn::MulAdd(difference, low, hn::Mul(difference, high));
    const Vec weight = Exp(d, x);
    hn::StoreU(weight, d, weights + i);
    return weight;
  });
}

template <bool kByDistance>
double Mass(const float* HWY_RESTRICT values, const float* HWY_RESTRICT weights,
            int size, const KeyRule& rule, float cut) {
  const Floats d;
  const Vec least = hn::Set(d, cut), low = hn::Set(d, rule.low);
  const Vec origin = hn::Set(d, rule.origin);
  const Vec center = hn::Set(d, rule.center);
  return SumOver(size, [&](int i) HWY_ATTR {
    const Vec keys =
        Keys<kByDistance>(hn::LoadU(d, values + i), low, origin, center);
    return hn::IfThenElseZero(hn::Ge(keys, least), hn::LoadU(d, weights + i));
  });
}

double MassOfBlock(const float* values, const float* weights, int size,
                   const KeyRule& rule, float cut) {
  return rule.by_distance ? Mass<true>(values, weights, size, rule, cut)
                          : Mass<false>(values, weights, size, rule,
                                        std::max(cut, rule.low));
}

double MomentOfBlock(const float* HWY_RESTRICT values,
                     const float* HWY_RESTRICT weights, int size, float low,
                     float center) {
  const Floats d;
  const Vec least = hn::Set(d, low), c = hn::Set(d, center);
  return SumOver(size, [&](int i) HWY_ATTR {
    const Vec v = hn::LoadU(d, values + i);
    const Vec moment = hn::Mul(hn::LoadU(d, weights + i), hn::Sub(v, c));
    return hn::IfThenElseZero(hn::Ge(v, least), moment);
  });
}

template <bool kByDistance>
BlockParts Partition(const float* HWY_RESTRICT values,
                     const float* HWY_RESTRICT weights, int size,
                     const KeyRule& rule, float scale, float low, float high,
                     float* HWY_RESTRICT keys_out,
                     float* HWY_RESTRICT weights_out) {
  const Floats d;
  const Vec bottom = hn::Set(d, low), top = hn::Set(d, high);
  const Vec rule_low = hn::Set(d, rule.low);
  const Vec origin = hn::Set(d, rule.origin), center = hn::Set(d, rule.center);
  const Vec factor = hn::Set(d, scale);
  size_t count = 0;
  const double above = SumOver(size, [&](int i) HWY_ATTR {
    const Vec weight = hn::LoadU(d, weights + i);
    const Vec keys =
        Keys<kByDistance>(hn::LoadU(d, values + i), rule_low, origin, center);
    const auto is_above = hn::Gt(keys, top);
    const auto between = hn::AndNot(is_above, hn::Ge(keys, bottom));
    hn::StoreU(hn::Compress(keys, between), d, keys_out + count);
    hn::StoreU(hn::Compress(hn::Mul(weight, factor), between), d,
               weights_out + count);
    count += hn::CountTrue(d, between);
    return hn::IfThenElseZero(is_above, weight);
  });
  return {above * scale, static_cast<int>(count)};
}

BlockParts PartitionBlock(const float* values, const float* weights, int size,
                          const KeyRule& rule, float scale, float low,
                          float high, float* keys, float* weights_out) {
  return rule.by_distance ? Partition<true>(values, weights, size, rule, scale,
                                            low, high, keys, weights_out)
                          : Partition<false>(values, weights, size, rule, scale,
                                             std::max(low, rule.low), high,
                                             keys, weights_out);
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier {

HWY_EXPORT(Weigh);
HWY_EXPORT(MassOfBlock);
HWY_EXPORT(MomentOfBlock);
HWY_EXPORT(PartitionBlock);

double WeighBlock(const float* values, int size, float max, float temperature,
                  float* weights) {
  return HWY_DYNAMIC_DISPATCH(Weigh)(values, size, max, temperature, weights);
}

double MassOfBlock(const float* values, const float* weights, int size,
                   const KeyRule& rule, float cut) {
  return HWY_DYNAMIC_DISPATCH(MassOfBlock)(values, weights, size, rule, cut);
}

double MomentOfBlock(const float* values, const float* weights, int size,
                     float low, float center) {
  return HWY_DYNAMIC_DISPATCH(MomentOfBlock)(values, weights, size, low,
                                             center);
}

BlockParts PartitionBlock(const float* values, const float* weights, int size,
                          const KeyRule& rule, float scale, float low,
                          float high, float* keys, float* weights_out) {
  return HWY_DYNAMIC_DISPATCH(PartitionBlock)(
      values, weights, size, rule, scale, low, high, keys, weights_out);
}

}  // namespace espalier
#endif  // HWY_ONCE

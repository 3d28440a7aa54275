#include "kernels/sample/weighted_block.h"

#include <algorithm>
#include <limits>

// Compiles the rest once for each instruction set; the order matters.
// clang-format off
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sample/weighted_block.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/logits/vector_math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {

// Returns the sum of four vectors.
HWY_INLINE double Total(Vec sum0, Vec sum1, Vec sum2, Vec sum3) {
  const Floats d;
  const hn::CappedTag<double, 8> dd;
  const hn::Rebind<float, decltype(dd)> half;
  float sums[16] = {};  // narrower vectors leave the rest at zero
  hn::StoreU(hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)), d, sums);
  auto total = hn::Zero(dd);
  for (int i = 0; i < 16; i += static_cast<int>(hn::Lanes(dd))) {
    total = hn::Add(total, hn::PromoteTo(dd, hn::LoadU(half, sums + i)));
  }
  return hn::GetLane(hn::SumOfLanes(dd, total));
}

// Returns the sum of body(i) over a block, in four sums, so that additions
// overlap.
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

// Computes (value - max) / temperature of values in memory.
class Exponents {
 public:
  explicit Exponents(const WeightRule& rule) : max_(rule.max) {
    // The product with 1 / temperature in two parts: rounding it would distort
    // the whole distribution. If it is so large that the second part might
    // overflow, only the best tokens have any weight.
    constexpr double kLargest = std::numeric_limits<float>::max();
    const double inverse = std::min(1.0 / rule.temperature, kLargest);
    high_ = static_cast<float>(inverse);
    low_ = inverse < 1e6 ? static_cast<float>(inverse - high_) : 0.0f;
  }

  HWY_INLINE Vec Of(Vec values) const {
    const Floats d;
    const Vec difference =
        hn::Max(hn::Sub(values, hn::Set(d, max_)), hn::Set(d, -1e30f));
    return hn::MulAdd(difference, hn::Set(d, low_),
                      hn::Mul(difference, hn::Set(d, high_)));
  }

 private:
  float max_, high_, low_;
};

void WeighBlock(const float* values, int size, const WeightRule& rule,
                float* weights) {
  const Floats d;
  const Exponents exponents(rule);
  for (int i = 0; i < size; i += static_cast<int>(hn::Lanes(d))) {
    const Vec x = exponents.Of(hn::LoadU(d, values + i));
    hn::StoreU(Exp(d, x), d, weights + i);
  }
}

template <bool kMoment>
WeightSums Sums(const float* HWY_RESTRICT values, int size,
                const WeightRule& rule, float low) {
  const Floats d;
  const Exponents exponents(rule);
  const int lanes = static_cast<int>(hn::Lanes(d));
  const Vec bottom = hn::Set(d, low), least = hn::Set(d, -87.0f);
  Vec masses[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  Vec moments[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (int i = 0; i < size; i += 4 * lanes) {
    for (int k = 0; k < 4; ++k) {
      const Vec v = hn::LoadU(d, values + i + k * lanes);
      const Vec x = exponents.Of(v);
      const Vec weight = hn::IfThenElseZero(hn::Ge(v, bottom), Exp(d, x));
      masses[k] = hn::Add(masses[k], weight);
      if constexpr (kMoment) {
        moments[k] = hn::MulAdd(weight, hn::Max(x, least), moments[k]);
      }
    }
  }
  const double mass = Total(masses[0], masses[1], masses[2], masses[3]);
  if constexpr (!kMoment) return {.mass = mass};
  return {mass, Total(moments[0], moments[1], moments[2], moments[3]) *
                    rule.temperature};
}

WeightSums SumsOfBlock(const float* values, int size, const WeightRule& rule,
                       float low, bool with_moment) {
  return with_moment ? Sums<true>(values, size, rule, low)
                     : Sums<false>(values, size, rule, low);
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

KeyGap GapAround(const float* keys, int size, float cut) {
  const Floats d;
  const Vec at = hn::Set(d, cut), highest = hn::Inf(d);
  const Vec lowest = hn::Neg(highest);
  Vec below = lowest, from = highest;
  for (int i = 0; i < size; i += static_cast<int>(hn::Lanes(d))) {
    const Vec k = hn::LoadU(d, keys + i);
    const auto is_from = hn::Ge(k, at);
    below = hn::Max(below, hn::IfThenElse(is_from, lowest, k));
    from = hn::Min(from, hn::IfThenElse(is_from, k, highest));
  }
  // Highway's MaxOfLanes and MinOfLanes do not support infinities on EMU128.
  float lows[hn::MaxLanes(d)], highs[hn::MaxLanes(d)];
  hn::StoreU(below, d, lows);
  hn::StoreU(from, d, highs);
  return {*std::max_element(lows, lows + hn::Lanes(d)),
          *std::min_element(highs, highs + hn::Lanes(d))};
}

double MomentOfBlock(const float* HWY_RESTRICT values,
                     const float* HWY_RESTRICT weights, int size,
                     const WeightRule& rule, float low, float high) {
  const Floats d;
  const Exponents exponents(rule);
  const Vec bottom = hn::Set(d, low), top = hn::Set(d, high);
  const Vec least = hn::Set(d, -87.0f);
  const double moment = SumOver(size, [&](int i) HWY_ATTR {
    const Vec v = hn::LoadU(d, values + i);
    const Vec x = hn::Max(exponents.Of(v), least);
    const auto within = hn::And(hn::Ge(v, bottom), hn::Le(v, top));
    return hn::IfThenElseZero(within, hn::Mul(hn::LoadU(d, weights + i), x));
  });
  return moment * rule.temperature;
}

SplitSums SumsOfSplit(const float* HWY_RESTRICT keys,
                      const float* HWY_RESTRICT weights, int size, float key) {
  const Floats d;
  const Vec cut = hn::Set(d, key), lowest = hn::Neg(hn::Inf(d));
  Vec from = hn::Zero(d), from_squares = from;
  Vec below = from, below_squares = from;
  for (int i = 0; i < size; i += static_cast<int>(hn::Lanes(d))) {
    const Vec k = hn::LoadU(d, keys + i), w = hn::LoadU(d, weights + i);
    const auto is_from = hn::Ge(k, cut);
    const Vec high = hn::IfThenElseZero(is_from, w);
    const Vec low =
        hn::IfThenElseZero(hn::Gt(k, lowest), hn::IfThenZeroElse(is_from, w));
    from = hn::Add(from, high);
    from_squares = hn::MulAdd(high, high, from_squares);
    below = hn::Add(below, low);
    below_squares = hn::MulAdd(low, low, below_squares);
  }
  const auto sum = [&](Vec v) HWY_ATTR {
    return double{hn::GetLane(hn::SumOfLanes(d, v))};
  };
  return {sum(from), sum(from_squares), sum(below), sum(below_squares)};
}

template <bool kByDistance>
int List(const float* HWY_RESTRICT values, int size, const KeyRule& rule,
         float low, float high, float* HWY_RESTRICT listed) {
  const Floats d;
  const Vec bottom = hn::Set(d, low), top = hn::Set(d, high);
  const Vec rule_low = hn::Set(d, rule.low);
  const Vec origin = hn::Set(d, rule.origin), center = hn::Set(d, rule.center);
  size_t count = 0;
  for (int i = 0; i < size; i += static_cast<int>(hn::Lanes(d))) {
    const Vec v = hn::LoadU(d, values + i);
    const Vec keys = Keys<kByDistance>(v, rule_low, origin, center);
    const auto within = hn::And(hn::Ge(keys, bottom), hn::Le(keys, top));
    hn::StoreU(hn::Compress(v, within), d, listed + count);
    count += hn::CountTrue(d, within);
  }
  return static_cast<int>(count);
}

int ListBlock(const float* values, int size, const KeyRule& rule, float low,
              float high, float* listed) {
  return rule.by_distance ? List<true>(values, size, rule, low, high, listed)
                          : List<false>(values, size, rule,
                                        std::max(low, rule.low), high, listed);
}

void WriteKeys(const float* HWY_RESTRICT values, int size, const KeyRule& rule,
               float* HWY_RESTRICT keys) {
  const Floats d;
  const Vec low = hn::Set(d, rule.low);
  const Vec origin = hn::Set(d, rule.origin), center = hn::Set(d, rule.center);
  for (int i = 0; i < size; i += static_cast<int>(hn::Lanes(d))) {
    const Vec v = hn::LoadU(d, values + i);
    hn::StoreU(rule.by_distance ? Keys<true>(v, low, origin, center) : v, d,
               keys + i);
  }
}

template <bool kByDistance>
BlockParts Partition(const float* HWY_RESTRICT values,
                     const float* HWY_RESTRICT weights, int size,
                     const KeyRule& rule, float low, float high,
                     float* HWY_RESTRICT keys_out,
                     float* HWY_RESTRICT weights_out) {
  const Floats d;
  const Vec bottom = hn::Set(d, low), top = hn::Set(d, high);
  const Vec rule_low = hn::Set(d, rule.low);
  const Vec origin = hn::Set(d, rule.origin), center = hn::Set(d, rule.center);
  size_t count = 0;
  const double above = SumOver(size, [&](int i) HWY_ATTR {
    const Vec weight = hn::LoadU(d, weights + i);
    const Vec keys =
        Keys<kByDistance>(hn::LoadU(d, values + i), rule_low, origin, center);
    const auto is_above = hn::Gt(keys, top);
    const auto between = hn::AndNot(is_above, hn::Ge(keys, bottom));
    hn::StoreU(hn::Compress(keys, between), d, keys_out + count);
    hn::StoreU(hn::Compress(weight, between), d, weights_out + count);
    count += hn::CountTrue(d, between);
    return hn::IfThenElseZero(is_above, weight);
  });
  return {above, static_cast<int>(count)};
}

BlockParts PartitionBlock(const float* values, const float* weights, int size,
                          const KeyRule& rule, float low, float high,
                          float* keys, float* weights_out) {
  return rule.by_distance ? Partition<true>(values, weights, size, rule, low,
                                            high, keys, weights_out)
                          : Partition<false>(values, weights, size, rule,
                                             std::max(low, rule.low), high,
                                             keys, weights_out);
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier {

HWY_EXPORT(WeighBlock);
HWY_EXPORT(SumsOfBlock);
HWY_EXPORT(MassOfBlock);
HWY_EXPORT(GapAround);
HWY_EXPORT(MomentOfBlock);
HWY_EXPORT(SumsOfSplit);
HWY_EXPORT(ListBlock);
HWY_EXPORT(WriteKeys);
HWY_EXPORT(PartitionBlock);

void WeighBlock(const float* values, int size, const WeightRule& rule,
                float* weights) {
  HWY_DYNAMIC_DISPATCH(WeighBlock)(values, size, rule, weights);
}

WeightSums SumsOfBlock(const float* values, int size, const WeightRule& rule,
                       float low, bool with_moment) {
  return HWY_DYNAMIC_DISPATCH(SumsOfBlock)(values, size, rule, low,
                                           with_moment);
}

double MassOfBlock(const float* values, const float* weights, int size,
                   const KeyRule& rule, float cut) {
  return HWY_DYNAMIC_DISPATCH(MassOfBlock)(values, weights, size, rule, cut);
}

KeyGap GapAround(const float* keys, int size, float cut) {
  return HWY_DYNAMIC_DISPATCH(GapAround)(keys, size, cut);
}

double MomentOfBlock(const float* values, const float* weights, int size,
                     const WeightRule& rule, float low, float high) {
  return HWY_DYNAMIC_DISPATCH(MomentOfBlock)(values, weights, size, rule, low,
                                             high);
}

SplitSums SumsOfSplit(const float* keys, const float* weights, int size,
                      float key) {
  return HWY_DYNAMIC_DISPATCH(SumsOfSplit)(keys, weights, size, key);
}

int ListBlock(const float* values, int size, const KeyRule& rule, float low,
              float high, float* listed) {
  return HWY_DYNAMIC_DISPATCH(ListBlock)(values, size, rule, low, high, listed);
}

void WriteKeys(const float* values, int size, const KeyRule& rule,
               float* keys) {
  HWY_DYNAMIC_DISPATCH(WriteKeys)(values, size, rule, keys);
}

BlockParts PartitionBlock(const float* values, const float* weights, int size,
                          const KeyRule& rule, float low, float high,
                          float* keys, float* weights_out) {
  return HWY_DYNAMIC_DISPATCH(PartitionBlock)(values, weights, size, rule, low,
                                              high, keys, weights_out);
}

}  // namespace espalier
#endif  // HWY_ONCE

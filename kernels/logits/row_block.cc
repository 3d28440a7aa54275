#include "kernels/logits/row_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

// Compiles the rest once for each instruction set; the order matters.
// clang-format off
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/logits/row_block.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/logits/vector_math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {

// Folds four maxima to kBlockGroups.
HWY_INLINE void StoreGroups(Vec max0, Vec max1, Vec max2, Vec max3,
                            float* groups) {
  const Floats d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const Vec low = hn::Max(max0, max1), high = hn::Max(max2, max3);
  if (lanes == kBlockGroups) {
    hn::StoreU(hn::Max(low, high), d, groups);
  } else if (2 * lanes == kBlockGroups) {
    hn::StoreU(low, d, groups);
    hn::StoreU(high, d, groups + lanes);
  } else {
    float all[4 * kBlockGroups];
    hn::StoreU(max0, d, all);
    hn::StoreU(max1, d, all + lanes);
    hn::StoreU(max2, d, all + 2 * lanes);
    hn::StoreU(max3, d, all + 3 * lanes);
    for (int i = 0; i < kBlockGroups; ++i) {
      groups[i] = i < 4 * lanes ? all[i] : -HUGE_VALF;
    }
  }
}

// Returns the greatest lane.
HWY_INLINE float MaxLane(Vec v) {
  const Floats d;
#if HWY_TARGET == HWY_EMU128
  // On this target MaxOfLanes begins with the least finite number, above -inf.
  float lanes[hn::MaxLanes(d)];
  hn::StoreU(v, d, lanes);
  return *std::max_element(lanes, lanes + hn::Lanes(d));
#else
  return hn::GetLane(hn::MaxOfLanes(d, v));
#endif
}

BlockMax MaxAndGroups(const float* HWY_RESTRICT values, int size,
                      float* HWY_RESTRICT groups) {
  const Floats d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  Vec max0 = hn::LoadU(d, values);
  Vec max1 = hn::LoadU(d, values + lanes);
  Vec max2 = hn::LoadU(d, values + 2 * lanes);
  Vec max3 = hn::LoadU(d, values + 3 * lanes);
  // A NaN stays in a sum: one addition per vector instead of two comparisons.
  Vec sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  const auto take = [&](int i, Vec& max, Vec& sum) HWY_ATTR {
    const Vec v = hn::LoadU(d, values + i);
    max = hn::Max(max, v);
    sum = hn::Add(sum, v);
  };
  for (int i = 0; i < size; i += 4 * lanes) {
    take(i, max0, sum0);
    take(i + lanes, max1, sum1);
    take(i + 2 * lanes, max2, sum2);
    take(i + 3 * lanes, max3, sum3);
  }
  if (groups != nullptr) StoreGroups(max0, max1, max2, max3, groups);
  const Vec max = hn::Max(hn::Max(max0, max1), hn::Max(max2, max3));
  const Vec sum = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  return {MaxLane(max), !hn::AllFalse(d, hn::IsNaN(sum))};
}

template <bool kMoment>
ExpMoments SumAndMoment(const float* HWY_RESTRICT values, int size, float max) {
  const Floats d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const Vec m = hn::Set(d, max), least = hn::Set(d, -87.0f);
  Vec sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  Vec moments[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (int i = 0; i < size; i += 4 * lanes) {
    for (int k = 0; k < 4; ++k) {
      const Vec x = hn::Sub(hn::LoadU(d, values + i + k * lanes), m);
      const Vec term = Exp(d, x);
      sums[k] = hn::Add(sums[k], term);
      if constexpr (kMoment) {
        moments[k] = hn::MulAdd(term, hn::Max(x, least), moments[k]);
      }
    }
  }
  const auto total = [&](const Vec* parts) HWY_ATTR {
    float chunk[kChunkSize] = {};  // narrower vectors leave the rest at zero
    for (int k = 0; k < 4; ++k) hn::StoreU(parts[k], d, chunk + k * lanes);
    return TotalOfChunk(chunk);
  };
  return {total(sums), kMoment ? total(moments) : 0.0};
}

ExpMoments SumAlone(const float* values, int size, float max) {
  return SumAndMoment<false>(values, size, max);
}

ExpMoments SumWithMoment(const float* values, int size, float max) {
  return SumAndMoment<true>(values, size, max);
}

// Bit i: values[i] > threshold.
HWY_INLINE uint64_t MaskAbove(Floats d, const float* values, Vec threshold) {
  const int lanes = static_cast<int>(hn::Lanes(d));
  uint64_t mask = 0;
  for (int i = 0; i < kChunkSize; i += lanes) {
    uint8_t bytes[8] = {};
    const auto above = hn::Gt(hn::LoadU(d, values + i), threshold);
    hn::StoreMaskBits(d, above, bytes);
    uint64_t bits;
    std::memcpy(&bits, bytes, sizeof bits);
    mask |= bits << i;
  }
  return mask;
}

ChunkMask FirstAbove(const float* HWY_RESTRICT values, int begin, int size,
                     float threshold) {
  const Floats d;
  const Vec limit = hn::Set(d, threshold);
  for (; begin < size; begin += kChunkSize) {
    const uint64_t mask = MaskAbove(d, values + begin, limit);
    if (mask != 0) return {begin, mask};
  }
  return {size, 0};
}

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier {

HWY_EXPORT(MaxAndGroups);
HWY_EXPORT(SumAlone);
HWY_EXPORT(SumWithMoment);
HWY_EXPORT(FirstAbove);

BlockMax MaxOfBlock(const float* values, int size) {
  return HWY_DYNAMIC_DISPATCH(MaxAndGroups)(values, size, nullptr);
}

BlockMax MaxOfBlock(const float* values, int size, float* group_max) {
  return HWY_DYNAMIC_DISPATCH(MaxAndGroups)(values, size, group_max);
}

double SumOfExp(const float* values, int size, float max) {
  return HWY_DYNAMIC_DISPATCH(SumAlone)(values, size, max).sum;
}

ExpMoments MomentsOfExp(const float* values, int size, float max) {
  return HWY_DYNAMIC_DISPATCH(SumWithMoment)(values, size, max);
}

ChunkMask FirstAbove(const float* values, int begin, int size,
                     float threshold) {
  return HWY_DYNAMIC_DISPATCH(FirstAbove)(values, begin, size, threshold);
}

}  // namespace espalier
#endif  // HWY_ONCE

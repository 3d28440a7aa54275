#include "kernels/row_block.h"

#include <cstring>

// Compiles what follows once for each instruction set; the order matters.
// clang-format off
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_block.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that four vectors never exceed a chunk.
using Floats = hn::CappedTag<float, 16>;
using Vec = hn::Vec<Floats>;

// x - n ln 2. With fused multiply-add one constant is enough: its error,
// 3e-9 |x|, is far below the rounding of x itself. Without, the product must
// be exact, so its constant is short and the rest comes after.
HWY_INLINE Vec Reduce(Floats d, Vec x, Vec n) {
#if HWY_NATIVE_FMA
  return hn::NegMulAdd(n, hn::Set(d, 0x1.62e43p-1f), x);
#else
  const Vec high = hn::NegMulAdd(n, hn::Set(d, 0x1.62e4p-1f), x);
  return hn::NegMulAdd(n, hn::Set(d, 0x1.7f7d1cp-20f), high);
#endif
}

// exp(x) for x <= 0: x = n ln 2 + r, exp(r) by a polynomial of degree 6 (our
// own minimax fit with P(0) = 1, relative error 3e-9; at degree 5 that
// condition costs all accuracy), 2^n added to the exponent bits.
HWY_INLINE Vec Exp(Floats d, Vec x) {
  x = hn::Max(x, hn::Set(d, -87.0f));       // 2^n stays normal
  const Vec magic = hn::Set(d, 0x1.8p23f);  // leaves n in the low bits
  const Vec shifted = hn::MulAdd(x, hn::Set(d, 0x1.715476p0f), magic);
  const Vec r = Reduce(d, x, hn::Sub(shifted, magic));
  Vec p = hn::Set(d, 0x1.709ba2p-10f);
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.129052p-7f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.55515ep-5f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.5553c0p-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.000002p-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const hn::RebindToSigned<Floats> di;
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
}

BlockMax MaxOfBlock(const float* HWY_RESTRICT values, int size) {
  const Floats d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  Vec max0 = hn::LoadU(d, values), max1 = max0, max2 = max0, max3 = max0;
  // A NaN stays in a sum: one addition a vector instead of two comparisons.
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
  const Vec max = hn::Max(hn::Max(max0, max1), hn::Max(max2, max3));
  const Vec sum = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  return {hn::GetLane(hn::MaxOfLanes(d, max)),
          !hn::AllFalse(d, hn::IsNaN(sum))};
}

// The sum of a chunk, in double.
HWY_INLINE double TotalOfChunk(const float* values) {
  const hn::CappedTag<double, 8> dd;
  const hn::Rebind<float, decltype(dd)> df;
  auto total = hn::Zero(dd);
  for (int i = 0; i < kChunkSize; i += static_cast<int>(hn::Lanes(dd))) {
    total = hn::Add(total, hn::PromoteTo(dd, hn::LoadU(df, values + i)));
  }
  return hn::GetLane(hn::SumOfLanes(dd, total));
}

double SumOfExp(const float* HWY_RESTRICT values, int size, float max) {
  const Floats d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const Vec m = hn::Set(d, max);
  const auto term = [&](int i) HWY_ATTR {
    return Exp(d, hn::Sub(hn::LoadU(d, values + i), m));
  };
  Vec sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  for (int i = 0; i < size; i += 4 * lanes) {
    sum0 = hn::Add(sum0, term(i));
    sum1 = hn::Add(sum1, term(i + lanes));
    sum2 = hn::Add(sum2, term(i + 2 * lanes));
    sum3 = hn::Add(sum3, term(i + 3 * lanes));
  }
  float sums[kChunkSize] = {};  // narrower vectors leave the rest at zero
  hn::StoreU(sum0, d, sums);
  hn::StoreU(sum1, d, sums + lanes);
  hn::StoreU(sum2, d, sums + 2 * lanes);
  hn::StoreU(sum3, d, sums + 3 * lanes);
  return TotalOfChunk(sums);
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

HWY_EXPORT(MaxOfBlock);
HWY_EXPORT(SumOfExp);
HWY_EXPORT(FirstAbove);

BlockMax MaxOfBlock(const float* values, int size) {
  return HWY_DYNAMIC_DISPATCH(MaxOfBlock)(values, size);
}

double SumOfExp(const float* values, int size, float max) {
  return HWY_DYNAMIC_DISPATCH(SumOfExp)(values, size, max);
}

ChunkMask FirstAbove(const float* values, int begin, int size,
                     float threshold) {
  return HWY_DYNAMIC_DISPATCH(FirstAbove)(values, begin, size, threshold);
}

}  // namespace espalier
#endif  // HWY_ONCE

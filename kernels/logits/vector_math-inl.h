// Vector arithmetic that SIMD sources share: the exponential, and a sum in
// double. Compiled anew for each instruction set of a source that includes it,
// hence the guard that toggles.
#if defined(ESPALIER_KERNELS_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ESPALIER_KERNELS_VECTOR_MATH_INL_H_
#undef ESPALIER_KERNELS_VECTOR_MATH_INL_H_
#else
#define ESPALIER_KERNELS_VECTOR_MATH_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/logits/row_block.h"

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

// exp(x) for x <= 0: x = n ln 2 + r, exp(r) by a polynomial of degree 6 (a
// minimax fit with P(0) = 1, relative error 3e-9; at degree 5 that condition
// costs all accuracy), 2^n added to the exponent bits.
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

}  // namespace HWY_NAMESPACE
}  // namespace espalier
HWY_AFTER_NAMESPACE();

#endif  // ESPALIER_KERNELS_VECTOR_MATH_INL_H_

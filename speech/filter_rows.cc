#include "speech/filter_rows.h"

// Compiles the rest once for each instruction set; the order matters.
// clang-format off
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "speech/filter_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;

// Two sums, so that additions need not wait for each other.
float Product(const float* x, const float* y, int size) {
  const Floats d;
  const int lanes = hn::MaxLanes(d);
  auto sum0 = hn::Zero(d), sum1 = sum0;
  int i = 0;
  for (; i + 2 * lanes <= size; i += 2 * lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, x + i + lanes), hn::LoadU(d, y + i + lanes),
                      sum1);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < size; ++i) sum += x[i] * y[i];
  return sum;
}

float FilteredRow(const float* samples, const float* row, const float* next,
                  float fraction, int size) {
  const float sum = Product(samples, row, size);
  if (fraction == 0) return sum;
  return sum + fraction * (Product(samples, next, size) - sum);
}

}  // namespace espalier::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier {

HWY_EXPORT(FilteredRow);

float FilteredRow(const float* samples, const float* row, const float* next,
                  float fraction, int size) {
  return HWY_DYNAMIC_DISPATCH(FilteredRow)(samples, row, next, fraction, size);
}

}  // namespace espalier
#endif

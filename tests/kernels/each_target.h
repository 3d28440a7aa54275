// Kernel tests run on every instruction set that this processor offers and
// that our SIMD sources are compiled for; elsewhere only the best one would
// ever run.
//
//   using ExpTest = TargetTest;
//   INSTANTIATE_TEST_SUITE_P(Targets, ExpTest, EachTarget(), TargetTestName);
//   TEST_P(ExpTest, ...) { ... }
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

// clang-format off
#include "kernels/simd_targets.h"
#include "hwy/targets.h"
// clang-format on

namespace espalier {

inline std::vector<int64_t> Targets() {
  std::vector<int64_t> targets;
  // The processor's targets, before a test restricts them.
  static const int64_t supported = hwy::SupportedTargets() & HWY_TARGETS;
  for (int64_t left = supported; left != 0; left &= left - 1) {
    targets.push_back(left & -left);
  }
  return targets;
}

inline auto EachTarget() { return ::testing::ValuesIn(Targets()); }

inline std::string TargetTestName(
    const ::testing::TestParamInfo<int64_t>& test) {
  return hwy::TargetName(test.param);
}

// All kernels run on `target` until this dies.
class TargetChoice {
 public:
  explicit TargetChoice(int64_t target) { Choose(target); }
  ~TargetChoice() { Choose(0); }
  TargetChoice(const TargetChoice&) = delete;
  TargetChoice& operator=(const TargetChoice&) = delete;

 private:
  // 0: all targets of the processor.
  static void Choose(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

class TargetTest : public ::testing::TestWithParam<int64_t> {
 private:
  TargetChoice choice_{GetParam()};
};

// True if multiply-add rounds once on `target`: on x86 from AVX2 on.
inline bool HasFusedMultiplyAdd(int64_t target) {
#if HWY_ARCH_X86
  return target <= HWY_AVX2;
#else
  return target != HWY_SCALAR && target != HWY_EMU128;
#endif
}

// x * y + sum as kernels on `target` compute it.
inline float MultiplyAdd(float x, float y, float sum, int64_t target) {
  if (HasFusedMultiplyAdd(target)) return std::fma(x, y, sum);
  const volatile float product = x * y;  // the compiler may not fuse it
  return product + sum;
}

}  // namespace espalier

// Sums over the times of steps.
#include "executor/cuda/cuda_step_times.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(CudaStepTimesTest, OnlyGapsTheDeviceMadeCount) {
  CudaStepTimes times;
  EXPECT_EQ(times.MedianGap(), absl::ZeroDuration());
  times.Add(1000, 1500, true);   // the first: nothing before it
  times.Add(1600, 2000, true);   // 100 after
  times.Add(9000, 9100, false);  // the host was late
  times.Add(9130, 9200, true);   // 30 after
  times.Add(9250, 9300, true);   // 50 after
  EXPECT_EQ(times.busy(), absl::Nanoseconds(500 + 400 + 100 + 70 + 50));
  EXPECT_EQ(times.idle(), absl::Nanoseconds(180));
  EXPECT_EQ(times.num_gaps(), 3);
  EXPECT_EQ(times.MedianGap(), absl::Nanoseconds(50));
}

TEST(CudaStepTimesTest, TheMedianIsOfTheLastGaps) {
  CudaStepTimes times;
  int64_t now = 1;
  for (int i = 0; i < 20000; ++i) {
    const int gap = i < 10000 ? 500 : 7;
    times.Add(now + gap, now + gap + 1, true);
    now += gap + 1;
  }
  EXPECT_EQ(times.MedianGap(), absl::Nanoseconds(7));
}

}  // namespace
}  // namespace espalier

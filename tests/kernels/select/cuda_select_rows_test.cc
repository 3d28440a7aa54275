// Which bounds of a group's rows are alike for selection on the device, and so
// need no graph of their own. Needs no device.
#include <gtest/gtest.h>

#include <set>

#include "kernels/select/cuda_select.h"

namespace espalier {
namespace {

CudaDevice Device(int num_sms, int compute_capability) {
  CudaDevice device;
  device.num_sms = num_sms;
  device.compute_capability = compute_capability;
  return device;
}
const CudaDevice kH200 = Device(132, 90);
const CudaDevice kA100 = Device(108, 80);

CudaSelectInputs Inputs(int vocab_size, int max_groups, int max_group_rows) {
  return {.num_rows = 64,
          .vocab_size = vocab_size,
          .max_groups = max_groups,
          .max_candidates = 16,
          .max_group_rows = max_group_rows};
}

int Same(int vocab_size, int max_groups, int max_group_rows) {
  return CudaSelectRowBucket(Inputs(vocab_size, max_groups, max_group_rows),
                             kH200);
}

TEST(CudaSelectRowsTest, BoundsAreAlikeInAFewRunsAndTheirLastStandsForEach) {
  for (const int vocab_size : {1000, 32000, 50257, 128256, 151936, 256000}) {
    for (const int max_groups : {1, 2, 4, 8, 16, 32}) {
      std::set<int> lasts;
      int last = 0;
      for (int rows = 1; rows <= 64; ++rows) {
        const int same = Same(vocab_size, max_groups, rows);
        ASSERT_GE(same, rows);
        ASSERT_LE(same, 64);
        if (rows <= last) {
          ASSERT_EQ(same, last);
        }
        last = same;
        lasts.insert(same);
      }
      EXPECT_LE(lasts.size(), 3u) << vocab_size << ", " << max_groups;
    }
  }
}

// A warp keeps two tiles: 16 blocks 512, 8 blocks half of that. One group's
// blocks read so many fast that are 64 KiB each: half of those.
TEST(CudaSelectRowsTest, ABoundIsNoLargerThanClustersPayFor) {
  // Rows of 32 tiles: 8 blocks pay for four of them.
  EXPECT_EQ(Same(32000, 1, 1), 4);
  EXPECT_EQ(Same(32000, 1, 5), 8);
  EXPECT_EQ(Same(32000, 1, 9), 64);
  // Four groups have so many blocks that 16 rows are read fast; 512 tiles.
  EXPECT_EQ(Same(32000, 4, 5), 16);
  EXPECT_EQ(Same(32000, 4, 17), 64);
  // Rows of 126 tiles.
  EXPECT_EQ(Same(128256, 1, 1), 1);
  EXPECT_EQ(Same(128256, 1, 2), 2);
  EXPECT_EQ(Same(128256, 1, 3), 64);
  EXPECT_EQ(Same(128256, 4, 2), 4);
}

TEST(CudaSelectRowsTest, WhereNoClusterPaysAllBoundsAreAlike) {
  CudaSelectInputs inputs = Inputs(32000, 1, 2);
  const CudaRowEdits edits;
  inputs.row_edits = &edits;
  EXPECT_EQ(CudaSelectRowBucket(inputs, kH200), 64);
  inputs = Inputs(32000, 1, 2);
  inputs.max_candidates = kMaxNarrowCudaSelect + 1;
  EXPECT_EQ(CudaSelectRowBucket(inputs, kH200), 64);
  EXPECT_EQ(CudaSelectRowBucket(Inputs(32000, 1, 2), kA100), 64);
}

}  // namespace
}  // namespace espalier

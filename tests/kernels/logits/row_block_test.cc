#include "kernels/logits/row_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/float_limits.h"
#include "tests/kernels/each_target.h"

namespace espalier {
namespace {

using RowBlockTest = TargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, RowBlockTest, EachTarget(), TargetTestName);

std::vector<float> UniformFloats(int size, float low, float high, int seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(low, high);
  std::vector<float> values(size);
  for (float& v : values) v = value(random);
  return values;
}

// One term; the others are too small to show down to exp(-60).
double ExpOf(float difference) {
  std::vector<float> values(kChunkSize, -kInf);
  values[13] = difference;
  return SumOfExp(values.data(), kChunkSize, 0.0f);
}

// The largest error of a term between `low` and 0, in ulp of exp.
double WorstUlp(float low) {
  double worst = 0;
  for (const float x : UniformFloats(50000, low, 0, 1)) {
    const double exact = std::exp(static_cast<double>(x));
    const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
    worst = std::max(worst, std::abs(ExpOf(x) - exact) / ulp);
  }
  return worst;
}

TEST_P(RowBlockTest, TermsAreWithinTwoUlpOfExpWhereTheyMatter) {
  EXPECT_LT(WorstUlp(-17), 2.0);
  EXPECT_LT(WorstUlp(-60), 5.0);
}

TEST_P(RowBlockTest, TheHighestTermIsExactlyOne) {
  std::vector<float> values(kChunkSize, 3.7f);
  EXPECT_EQ(SumOfExp(values.data(), kChunkSize, 3.7f), kChunkSize);
}

TEST_P(RowBlockTest, VeryLowTermsVanish) {
  for (const float low : {-88.0f, -1000.0f, -3e38f, -kInf}) {
    std::vector<float> values(2 * kChunkSize, low);
    values[77] = 0;
    EXPECT_EQ(SumOfExp(values.data(), 2 * kChunkSize, 0.0f), 1.0) << low;
  }
}

TEST_P(RowBlockTest, SumOfExpAgreesWithDoubleAtEverySizeAndAlignment) {
  const std::vector<float> values = UniformFloats(17 * kChunkSize, -30, 0, 2);
  for (int chunks = 1; chunks <= 16; ++chunks) {
    for (int offset = 0; offset < 17; ++offset) {
      double exact = 0;
      for (int i = 0; i < chunks * kChunkSize; ++i) {
        exact += std::exp(static_cast<double>(values[offset + i]));
      }
      EXPECT_NEAR(SumOfExp(&values[offset], chunks * kChunkSize, 0.0f), exact,
                  4e-7 * exact);
    }
  }
}

TEST_P(RowBlockTest, MaxFindsTheMaximumWhereverItIs) {
  for (int where = 0; where < 2 * kChunkSize; ++where) {
    std::vector<float> values = UniformFloats(2 * kChunkSize, -9, -1, where);
    values[where] = -0.5f;
    const BlockMax max = MaxOfBlock(values.data(), 2 * kChunkSize);
    EXPECT_EQ(max.max, -0.5f);
    EXPECT_FALSE(max.maybe_nan);
  }
}

// As many tokens as groups have a group's maximum or more, so that no token may
// count in two.
TEST_P(RowBlockTest, GroupsAreDisjointAndCoverTheBlock) {
  for (int where = 0; where < 2 * kChunkSize; ++where) {
    std::vector<float> values = UniformFloats(2 * kChunkSize, -9, -1, where);
    values[where] = -0.5f;
    float groups[kBlockGroups];
    MaxOfBlock(values.data(), 2 * kChunkSize, groups);
    EXPECT_EQ(std::count(groups, groups + kBlockGroups, -0.5f), 1) << where;
  }
}

TEST_P(RowBlockTest, MomentsComeWithTheSameSum) {
  std::vector<float> values = UniformFloats(2 * kChunkSize, -9, -1, 3);
  values[7] = -kInf;
  double moment = 0;
  for (const float v : values) {
    if (v > -kInf) moment += std::exp(double{v}) * v;
  }
  const ExpMoments moments = MomentsOfExp(values.data(), 2 * kChunkSize, 0.0f);
  EXPECT_EQ(moments.sum, SumOfExp(values.data(), 2 * kChunkSize, 0.0f));
  EXPECT_NEAR(moments.moment, moment, 1e-6 * std::abs(moment));
}

TEST_P(RowBlockTest, MaxSeesANanWhereverItIs) {
  for (int where = 0; where < 2 * kChunkSize; ++where) {
    std::vector<float> values = UniformFloats(2 * kChunkSize, -9, -1, where);
    values[2 * kChunkSize - 1 - where] = -kInf;
    values[where] = kNan;
    EXPECT_TRUE(MaxOfBlock(values.data(), 2 * kChunkSize).maybe_nan);
  }
}

TEST_P(RowBlockTest, InfinitiesAreNotTakenForNan) {
  std::vector<float> values(kChunkSize, -kInf);
  EXPECT_FALSE(MaxOfBlock(values.data(), kChunkSize).maybe_nan);
  EXPECT_EQ(MaxOfBlock(values.data(), kChunkSize).max, -kInf);
}

TEST_P(RowBlockTest, FirstAboveVisitsExactlyTheValuesAboveTheThreshold) {
  const int size = 9 * kChunkSize;
  std::vector<float> values = UniformFloats(size, 0, 1, 5);
  for (const float threshold : {-1.0f, 0.5f, 0.99f, values[100], 1.0f}) {
    std::vector<int> expected, found;
    for (int i = 0; i < size; ++i) {
      if (values[i] > threshold) expected.push_back(i);
    }
    for (int begin = 0; begin < size; begin += kChunkSize) {
      const ChunkMask chunk = FirstAbove(values.data(), begin, size, threshold);
      begin = chunk.begin;
      for (int i = 0; i < kChunkSize; ++i) {
        if (chunk.mask >> i & 1) found.push_back(begin + i);
      }
    }
    EXPECT_EQ(found, expected) << threshold;
  }
}

}  // namespace
}  // namespace espalier

#include "batcher/scheduler/prefill_share.h"

#include <gtest/gtest.h>

#include <string>

namespace espalier {
namespace {

// Returns a letter for each of `num_steps` steps whose decoding leaves
// `num_left` tokens while prompts wait: p if it is for prompts alone, else d.
std::string Steps(PrefillShare share, int num_left, int num_steps) {
  std::string steps;
  for (int i = 0; i < num_steps; ++i) {
    const bool alone =
        share.IsNextForPrefillAlone(num_left, share.IsShort(num_left));
    steps += alone ? 'p' : 'd';
  }
  return steps;
}

TEST(PrefillStepsTest, AStepForPromptsAlonePaysADebtOfAWholeStep) {
  EXPECT_EQ(Steps(PrefillShare(0.5, 8), 2, 9), "dddpdddpd");
  EXPECT_EQ(Steps(PrefillShare(0.25, 8), 0, 8), "dddpdddp");
}

TEST(PrefillStepsTest, PromptsWithTheirShareGetNoStepAlone) {
  EXPECT_EQ(Steps(PrefillShare(0.5, 8), 4, 20), std::string(20, 'd'));
  EXPECT_EQ(Steps(PrefillShare(0, 8), 0, 20), std::string(20, 'd'));
}

TEST(PrefillStepsTest, OfTwoStepsInARowOneDecodes) {
  for (const double share : {0.01, 0.3, 0.6, 1.0}) {
    for (const int num_left : {0, 1, 5}) {
      const std::string steps = Steps(PrefillShare(share, 8), num_left, 100);
      EXPECT_EQ(steps.find("pp"), std::string::npos) << steps;
    }
  }
}

TEST(PrefillStepsTest, AShareOfLessThanATokenIsOne) {
  EXPECT_TRUE(PrefillShare(0.01, 8).IsShort(0));
  EXPECT_FALSE(PrefillShare(0.01, 8).IsShort(1));
  EXPECT_FALSE(PrefillShare(0, 8).IsShort(0));
}

TEST(PrefillStepsTest, AStepWithoutNeedEndsTheDebt) {
  PrefillShare share(0.5, 8);
  EXPECT_FALSE(share.IsNextForPrefillAlone(0, true));
  EXPECT_FALSE(share.IsNextForPrefillAlone(0, false));
  EXPECT_FALSE(share.IsNextForPrefillAlone(0, true));
  EXPECT_TRUE(share.IsNextForPrefillAlone(0, true));
}

}  // namespace
}  // namespace espalier

#include "beam/strategy/finished_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

namespace espalier {
namespace {

using ::testing::ElementsAre;

// The nodes of a pool that took beams of these scores, numbered from 0.
std::vector<int> NodesAfter(int capacity, std::initializer_list<float> scores) {
  FinishedPool pool(capacity);
  int node = 0;
  for (const float score : scores) {
    pool.Add({.node = node++, .score = score});
  }
  std::vector<int> nodes;
  for (const FinishedBeam& beam : pool.beams()) nodes.push_back(beam.node);
  return nodes;
}

TEST(FinishedPoolTest, BeamsAreBestFirst) {
  EXPECT_THAT(NodesAfter(3, {-2, -1, -3}), ElementsAre(1, 0, 2));
}

TEST(FinishedPoolTest, ABetterBeamReplacesTheWorstOfAFullPool) {
  EXPECT_THAT(NodesAfter(2, {-2, -1, -1.5}), ElementsAre(1, 2));
  EXPECT_THAT(NodesAfter(2, {-2, -1, -0.5}), ElementsAre(2, 1));
}

TEST(FinishedPoolTest, AWorseBeamLeavesAFullPoolAlone) {
  EXPECT_THAT(NodesAfter(2, {-2, -1, -3}), ElementsAre(1, 0));
}

TEST(FinishedPoolTest, AmongEqualScoresTheEarlierIsBetter) {
  EXPECT_THAT(NodesAfter(3, {-1, -1, -1}), ElementsAre(0, 1, 2));
  EXPECT_THAT(NodesAfter(2, {-1, -2, -2}), ElementsAre(0, 1));
  EXPECT_THAT(NodesAfter(2, {-2, -1, -1}), ElementsAre(1, 2));
}

TEST(FinishedPoolTest, IsFullAtItsCapacity) {
  FinishedPool pool(2);
  EXPECT_FALSE(pool.full());
  pool.Add({.score = -1});
  EXPECT_FALSE(pool.full());
  pool.Add({.score = -4});
  EXPECT_TRUE(pool.full());
  EXPECT_EQ(pool.worst_score(), -4);
}

}  // namespace
}  // namespace espalier

#include "model/positions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

TEST(PositionsTest, SinesComeBeforeCosines) {
  const std::vector<float> table = SinusoidalPositions(3, 5);
  EXPECT_THAT(std::vector(table.begin(), table.begin() + 5),
              ElementsAre(0, 0, 0, 1, 1));
  // 10000^(-2 / 5) is 0.0251189.
  EXPECT_THAT(
      std::vector(table.begin() + 10, table.end()),
      ElementsAre(FloatNear(0.9092974f, 1e-6f), FloatNear(0.0502164f, 1e-6f),
                  FloatNear(0.0012619f, 1e-6f), FloatNear(-0.4161468f, 1e-6f),
                  FloatNear(0.9987384f, 1e-6f)));
}

// Values of transformers' M2M100SinusoidalPositionalEmbedding.get_embedding.
TEST(PositionsTest, Tensor2TensorsFrequenciesEndAtOneOfTenThousand) {
  const std::vector<float> table = Tensor2TensorPositions(2, 2, 7);
  ASSERT_EQ(table.size(), 14u);
  EXPECT_THAT(table, Pointwise(FloatNear(1e-6f),
                               {0.9092974f, 0.0199987f, 0.0002f, -0.4161468f,
                                0.9998f, 1.0f, 0.0f, 0.1411200f, 0.0299955f,
                                0.0003f, -0.9899925f, 0.9995500f, 1.0f, 0.0f}));
  EXPECT_THAT(Tensor2TensorPositions(3, 1, 7),
              Pointwise(FloatNear(0.0f),
                        std::vector<float>(table.begin() + 7, table.end())));
}

// Buckets of each distance as transformers' T5Attention has them.
TEST(PositionsTest, DistancesHaveTheBucketsOfT5) {
  std::vector<float> buckets(8);
  std::iota(buckets.begin(), buckets.end(), 0.0f);
  EXPECT_THAT(
      BiasesByDistance(buckets, /*num_heads=*/1, /*max_distance=*/9,
                       /*sees_all=*/true),
      ElementsAre(3, 3, 3, 3, 3, 2, 2, 2, 1, 0, 5, 6, 6, 6, 7, 7, 7, 7, 7));
  EXPECT_THAT(
      BiasesByDistance(buckets, /*num_heads=*/1, /*max_distance=*/9,
                       /*sees_all=*/false),
      ElementsAre(7, 7, 6, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
}

TEST(PositionsTest, EachHeadHasItsOwnBiases) {
  const std::vector<float> buckets = {0, 10, 1, 11, 2, 12, 3, 13};
  EXPECT_THAT(BiasesByDistance(buckets, /*num_heads=*/2, /*max_distance=*/3,
                               /*sees_all=*/false),
              ElementsAre(3, 2, 1, 0, 0, 0, 0, 13, 12, 11, 10, 10, 10, 10));
}

}  // namespace
}  // namespace espalier

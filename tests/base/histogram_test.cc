#include "base/histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kBounds[] = {10, 20, 50};

TEST(HistogramTest, ABoundBelongsToItsBucket) {
  Histogram histogram(kBounds);
  for (const int64_t value : {-3, 10, 11, 20, 20, 21, 50, 51, 1000}) {
    histogram.Add(value);
  }
  EXPECT_THAT(histogram.counts(), ElementsAre(2, 3, 2, 2));
  EXPECT_EQ(histogram.count(), 9);
  EXPECT_EQ(histogram.sum(), -3 + 10 + 11 + 40 + 21 + 50 + 51 + 1000);
}

TEST(HistogramTest, ValuesInARowCountOnceEach) {
  Histogram histogram(kBounds);
  for (const int64_t value : {0, 0, 60, 60, 60, 0}) histogram.Add(value);
  EXPECT_THAT(histogram.counts(), ElementsAre(3, 0, 0, 3));
}

TEST(HistogramTest, WithoutBoundsThereIsOneBucket) {
  Histogram histogram;
  EXPECT_THAT(histogram.counts(), ElementsAre(0));
  histogram.Add(7);
  EXPECT_THAT(histogram.counts(), ElementsAre(1));
  EXPECT_EQ(histogram.sum(), 7);
}

}  // namespace
}  // namespace espalier

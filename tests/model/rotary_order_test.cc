#include "model/rotary_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/elementwise/elementwise.h"

namespace espalier {
namespace {

constexpr int kPositions = 40;

TransformerConfig PartlyRotated(int head_dim, double part) {
  TransformerConfig config;
  config.num_heads = 3;
  config.num_kv_heads = 2;
  config.head_dim = head_dim;
  config.rope.partial_rotary_factor = part;
  return config;
}

TEST(RotaryOrderTest, HeadsThatAreRotatedWholeStayAsTheyAre) {
  std::vector<int> ascending(7 * 8);
  std::iota(ascending.begin(), ascending.end(), 0);
  EXPECT_EQ(HeadRowOrder(PartlyRotated(8, 1), 8), ascending);
}

TEST(RotaryOrderTest, HeadsThatAreNotRotatedAreFilledUpAtTheirEnds) {
  TransformerConfig config = PartlyRotated(5, 1);
  config.positions = PositionKind::kLearned;
  EXPECT_EQ(QkRowOrder(config, 8),
            std::vector<int>({0, 1, 2, 3, 4, -1, -1, -1}));
  EXPECT_EQ(PadRotaryRows({}, 2, 8, 1), std::vector<float>(8, 1.0f));
}

// Every row of the model is there once, values in their order, and the rest is
// none.
void ExpectAllRowsAreThere(const std::vector<int>& order,
                           const TransformerConfig& config, int head_width) {
  ASSERT_EQ(order.size(), size_t(7) * head_width);
  std::vector<int> rows = order;
  std::erase(rows, kNoHeadRow);
  const int first_value = 5 * config.head_dim;
  const auto values = std::find(rows.begin(), rows.end(), first_value);
  EXPECT_TRUE(std::is_sorted(values, rows.end()));
  std::sort(rows.begin(), rows.end());
  std::vector<int> ascending(7 * config.head_dim);
  std::iota(ascending.begin(), ascending.end(), 0);
  EXPECT_EQ(rows, ascending);
}

// Rotating the first dimensions of a head is, in the other order, rotating all
// of it by the padded table.
void ExpectRotatesAlike(const TransformerConfig& config, int head_width) {
  const std::vector<int> order = HeadRowOrder(config, head_width);
  ExpectAllRowsAreThere(order, config, head_width);
  const RotaryTable part(InverseFrequencies(config.rope, config.head_dim),
                         kPositions, 1.3);
  const auto cosines = PadRotaryRows(part.cosines(), kPositions, head_width, 1);
  const auto sines = PadRotaryRows(part.sines(), kPositions, head_width, 0);
  const int half = head_width / 2;
  ASSERT_EQ(cosines.size(), size_t(kPositions) * half);
  std::mt19937 random(config.head_dim);
  std::normal_distribution<float> normal;
  std::vector<float> x(5 * config.head_dim);
  for (float& value : x) value = normal(random);
  std::vector<float> expected = x;
  part.Rotate(expected, 5, 23);
  const auto at = [](const std::vector<float>& values, int row) {
    return row == kNoHeadRow ? 0.0f : values[row];
  };
  for (int head = 0; head < 5 * head_width; head += head_width) {
    for (int i = 0; i < half; ++i) {
      const int first = order[head + i], second = order[head + half + i];
      const float a = at(x, first), b = at(x, second);
      const float c = cosines[23 * half + i], s = sines[23 * half + i];
      EXPECT_FLOAT_EQ(a * c - b * s, at(expected, first));
      EXPECT_FLOAT_EQ(b * c + a * s, at(expected, second));
    }
  }
}

TEST(RotaryOrderTest, ARotatedPartIsAWholeRotationInAnotherOrder) {
  for (const int head_dim : {8, 16, 128}) {
    ExpectRotatesAlike(PartlyRotated(head_dim, 0.75), head_dim);
  }
}

TEST(RotaryOrderTest, NarrowHeadsAreFilledUpBehindEachHalf) {
  for (const int head_dim : {2, 6, 12, 20, 100}) {
    for (const double part : {1.0, 0.5}) {
      const TransformerConfig config = PartlyRotated(head_dim, part);
      if (config.rope.RotaryDim(head_dim) % 2 != 0) continue;
      ExpectRotatesAlike(config, (head_dim + 7) / 8 * 8);
    }
  }
}

}  // namespace
}  // namespace espalier

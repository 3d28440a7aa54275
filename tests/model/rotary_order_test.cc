#include "model/rotary_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/elementwise/elementwise.h"

namespace espalier {
namespace {

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
  EXPECT_EQ(RotaryRowOrder(PartlyRotated(8, 1)), ascending);
}

// Rotating the first dimensions of a head is, in the other order, rotating all
// of it by the padded table; and values stay where they are.
TEST(RotaryOrderTest, ARotatedPartIsAWholeRotationInAnotherOrder) {
  for (const int head_dim : {8, 16, 128}) {
    const TransformerConfig config = PartlyRotated(head_dim, 0.75);
    const int rotary_dim = config.rope.RotaryDim(head_dim);
    const std::vector<int> order = RotaryRowOrder(config);
    std::vector<int> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i < order.size(); ++i) {
      ASSERT_EQ(sorted[i], static_cast<int>(i));
      const int num_rotated = 5 * head_dim;
      if (static_cast<int>(i) >= num_rotated) {
        EXPECT_EQ(order[i], sorted[i]);
      }
    }
    const RotaryTable part(InverseFrequencies(config.rope, head_dim), 40, 1.3);
    const auto cosines = PadRotaryRows(part.cosines(), rotary_dim, head_dim, 1);
    const auto sines = PadRotaryRows(part.sines(), rotary_dim, head_dim, 0);
    ASSERT_EQ(cosines.size(), size_t(40) * head_dim / 2);
    std::mt19937 random(head_dim);
    std::normal_distribution<float> normal;
    std::vector<float> x(5 * head_dim);
    for (float& value : x) value = normal(random);
    std::vector<float> expected = x;
    part.Rotate(expected, 5, 23);
    for (int head = 0; head < 5 * head_dim; head += head_dim) {
      const int half = head_dim / 2;
      for (int i = 0; i < half; ++i) {
        const float a = x[order[head + i]];
        const float b = x[order[head + half + i]];
        const float c = cosines[23 * half + i], s = sines[23 * half + i];
        EXPECT_FLOAT_EQ(a * c - b * s, expected[order[head + i]]);
        EXPECT_FLOAT_EQ(b * c + a * s, expected[order[head + half + i]]);
      }
    }
  }
}

}  // namespace
}  // namespace espalier

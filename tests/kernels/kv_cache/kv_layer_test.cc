#include "kernels/kv_cache/kv_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace espalier {
namespace {

TEST(CopyPagesTest, CopiesTheFilledSlotsAndNothingElse) {
  const int page_size = 5, slot = 2 * 3;
  std::vector<float> keys(4 * page_size * slot), values(keys.size());
  std::iota(keys.begin(), keys.end(), 0.0f);
  std::iota(values.begin(), values.end(), 1000.0f);
  std::vector<float> own_keys = keys, own_values = values;
  KvLayer layer = {own_keys, own_values, page_size, /*num_kv_heads=*/2,
                   /*head_dim=*/3};
  const std::vector<PageCopy> copies = {{PageId{0}, PageId{2}, 3},
                                        {PageId{0}, PageId{3}, 1}};
  CopyPages(copies, layer);
  for (const PageCopy& copy : copies) {
    for (int i = 0; i < copy.num_tokens * slot; ++i) {
      keys[copy.to.value * page_size * slot + i] = keys[i];
      values[copy.to.value * page_size * slot + i] = values[i];
    }
  }
  EXPECT_EQ(own_keys, keys);
  EXPECT_EQ(own_values, values);
}

}  // namespace
}  // namespace espalier

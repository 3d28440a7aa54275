#include "executor/cuda/draft/row_ranges.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <vector>

namespace espalier {
namespace {

TEST(RowRangesTest, RunsAreTakenFromTheFrontAndJoinWhenGivenBack) {
  RowRanges rows(10);
  EXPECT_EQ(rows.Take(4), 0);
  EXPECT_EQ(rows.Take(4), 4);
  EXPECT_EQ(rows.Take(3), std::nullopt);
  rows.GiveBack(0, 4);
  EXPECT_EQ(rows.Take(5), std::nullopt);  // 0 to 3, and 8 and 9
  rows.GiveBack(4, 4);
  EXPECT_EQ(rows.Take(10), 0);
  EXPECT_EQ(rows.num_free(), 0);
}

TEST(RowRangesTest, NoRowIsTakenTwiceAndNoneIsLost) {
  constexpr int kNumRows = 40;
  std::mt19937 random(1);
  RowRanges rows(kNumRows);
  std::map<int, int> taken;
  std::vector<bool> is_taken(kNumRows);
  for (int i = 0; i < 2000; ++i) {
    if (random() % 2 == 0 || taken.empty()) {
      const int count = 1 + static_cast<int>(random() % 9);
      const std::optional<int> first = rows.Take(count);
      if (!first.has_value()) continue;
      for (int row = *first; row < *first + count; ++row) {
        ASSERT_FALSE(is_taken[row]);
        is_taken[row] = true;
      }
      taken[*first] = count;
    } else {
      auto it = taken.begin();
      std::advance(it, random() % taken.size());
      for (int row = it->first; row < it->first + it->second; ++row) {
        is_taken[row] = false;
      }
      rows.GiveBack(it->first, it->second);
      taken.erase(it);
    }
    int num_free = kNumRows;
    for (const auto& [first, count] : taken) num_free -= count;
    ASSERT_EQ(rows.num_free(), num_free);
  }
  for (const auto& [first, count] : taken) rows.GiveBack(first, count);
  EXPECT_EQ(rows.Take(kNumRows), 0);
}

}  // namespace
}  // namespace espalier

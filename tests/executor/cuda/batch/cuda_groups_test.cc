// Slots of resident groups: ranges never overlap, and there is one as long as
// there are slots, because groups move together.
#include "executor/cuda/batch/cuda_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

TEST(CudaGroupsTest, RangesOfLiveGroupsNeverOverlap) {
  constexpr int kNumSlots = 200;
  std::mt19937 random(1);
  CudaGroups groups(kNumSlots);
  std::map<int64_t, int> widths;
  int num_refused = 0;
  int num_moves = 0;
  // Owner of each slot on the device.
  std::vector<int64_t> owners(kNumSlots, -1);
  for (int i = 0; i < 3000; ++i) {
    const int64_t id = random() % 30;
    if (random() % 3 == 0) {
      groups.Drop(RequestId{id});
      widths.erase(id);
    } else {
      const int width = 1 + random() % 60;
      const auto group = groups.Set(RequestId{id}, width);
      widths.erase(id);
      for (const CudaGroupMove& move : groups.TakeMoves()) {
        ASSERT_LT(move.to, move.from);
        std::copy_n(owners.begin() + move.from, move.num_slots,
                    owners.begin() + move.to);
        ++num_moves;
      }
      if (group.ok())
        std::fill_n(owners.begin() + (*group)->first_slot, width, id);
      if (group.ok()) widths[id] = width;
      num_refused += !group.ok();
    }
    std::vector<bool> used(kNumSlots);
    for (const auto& [live, num_slots] : widths) {
      const CudaGroup* const group = groups.Find(RequestId{live});
      ASSERT_NE(group, nullptr);
      ASSERT_EQ(group->num_slots, num_slots);
      for (int s = 0; s < num_slots; ++s) {
        ASSERT_FALSE(used.at(group->first_slot + s));
        used[group->first_slot + s] = true;
        ASSERT_EQ(owners[group->first_slot + s], live);
      }
    }
    ASSERT_EQ(groups.num_groups(), static_cast<int>(widths.size()));
  }
  EXPECT_GT(num_refused, 0);
  EXPECT_GT(num_moves, 0);
}

TEST(CudaGroupsTest, AGroupSetAgainKeepsItsSlots) {
  CudaGroups groups(10);
  ASSERT_OK_AND_ASSIGN(CudaGroup* const a, groups.Set(RequestId{1}, 4));
  ASSERT_OK_AND_ASSIGN(CudaGroup* const b, groups.Set(RequestId{2}, 6));
  EXPECT_EQ(a->first_slot, 0);
  EXPECT_EQ(b->first_slot, 4);
  ASSERT_OK_AND_ASSIGN(CudaGroup* const again, groups.Set(RequestId{1}, 4));
  EXPECT_EQ(again, a);
  EXPECT_THAT(groups.Set(RequestId{3}, 1),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("needs 1 slots")));
  groups.Clear();
  ASSERT_OK(groups.Set(RequestId{3}, 10).status());
}

}  // namespace
}  // namespace espalier

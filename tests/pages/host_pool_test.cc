#include "pages/host_pool.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace espalier {
namespace {

TEST(HostPoolTest, SlotsAreTakenUntilNoneIsFree) {
  HostPool pool(2);
  HostSlot first = pool.Take();
  HostSlot second = pool.Take();
  ASSERT_TRUE(first && second);
  EXPECT_NE(first.id(), second.id());
  EXPECT_EQ(pool.num_held(), 2);
  EXPECT_FALSE(pool.Take());
  EXPECT_EQ(pool.num_held(), 2);
  const HostSlotId id = first.id();
  first = HostSlot();
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.Take().id(), id);
}

TEST(HostPoolTest, ASlotIsFreeWhenItsLastHolderIsGone) {
  HostPool pool(1);
  std::vector<HostSlot> holders(3, pool.Take());
  EXPECT_EQ(pool.ref_count(holders[0].id()), 3);
  HostSlot moved = std::move(holders[0]);
  EXPECT_FALSE(holders[0]);
  EXPECT_EQ(pool.ref_count(moved.id()), 3);
  holders.clear();
  EXPECT_EQ(pool.ref_count(moved.id()), 1);
  EXPECT_EQ(pool.num_free(), 0);
  moved = HostSlot();
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(HostPoolTest, APoolOfNoSlotsHasNone) {
  HostPool pool(0);
  EXPECT_FALSE(pool.Take());
  EXPECT_EQ(pool.num_slots(), 0);
}

TEST(HostPoolDeathTest, ASlotDoesNotOutliveItsPool) {
  EXPECT_DEATH(
      {
        HostSlot slot;
        HostPool pool(1);
        slot = pool.Take();
      },
      "outlive");
}

}  // namespace
}  // namespace espalier

#include "pages/page_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;

TEST(PagePoolTest, EveryPageIsHandedOutOnce) {
  PagePool pool(5, 16);
  std::vector<PageRef> held;
  std::set<PageId> ids;
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK_AND_ASSIGN(PageRef page, pool.Allocate());
    ids.insert(page.id());
    held.push_back(std::move(page));
  }
  EXPECT_EQ(ids.size(), 5);
  EXPECT_EQ(*ids.begin(), PageId{0});
  EXPECT_EQ(*ids.rbegin(), PageId{4});
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.num_held(), 5);
}

TEST(PagePoolTest, FailedAllocationLeavesPoolUnchanged) {
  PagePool pool(1, 16);
  ASSERT_OK_AND_ASSIGN(const PageRef page, pool.Allocate());
  EXPECT_THAT(pool.Allocate(), StatusIs(absl::StatusCode::kResourceExhausted,
                                        "need 1 page, 0 of 1 free"));
  EXPECT_EQ(pool.num_held(), 1);
  EXPECT_EQ(pool.ref_count(page.id()), 1);
}

TEST(PagePoolTest, APoolOfNoPagesHasNoneToGive) {
  PagePool pool(0, 1);
  EXPECT_THAT(pool.Allocate(), StatusIs(absl::StatusCode::kResourceExhausted,
                                        "need 1 page, 0 of 0 free"));
}

TEST(PageRefTest, CopyingRetainsAndDestructionReleases) {
  PagePool pool(2, 16);
  ASSERT_OK_AND_ASSIGN(PageRef page, pool.Allocate());
  const PageId id = page.id();
  EXPECT_FALSE(page.shared());
  {
    const PageRef twin = page;
    EXPECT_EQ(twin.id(), id);
    EXPECT_TRUE(page.shared());
    EXPECT_EQ(pool.ref_count(id), 2);
    EXPECT_EQ(pool.num_held(), 1);
  }
  EXPECT_FALSE(page.shared());
  page = PageRef();
  EXPECT_EQ(pool.ref_count(id), 0);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(PageRefTest, MovingNeitherRetainsNorReleases) {
  PagePool pool(1, 16);
  ASSERT_OK_AND_ASSIGN(PageRef page, pool.Allocate());
  PageRef moved = std::move(page);
  EXPECT_FALSE(page);
  EXPECT_EQ(page.pool(), nullptr);
  EXPECT_EQ(pool.ref_count(moved.id()), 1);
  PageRef assigned;
  assigned = std::move(moved);
  EXPECT_FALSE(moved);
  EXPECT_EQ(assigned.pool(), &pool);
  EXPECT_EQ(pool.ref_count(assigned.id()), 1);
}

TEST(PageRefTest, AssignmentReleasesWhatWasHeld) {
  PagePool pool(2, 16);
  ASSERT_OK_AND_ASSIGN(PageRef first, pool.Allocate());
  ASSERT_OK_AND_ASSIGN(const PageRef second, pool.Allocate());
  const PageId first_id = first.id();
  first = second;
  EXPECT_EQ(pool.ref_count(first_id), 0);
  EXPECT_EQ(pool.ref_count(second.id()), 2);
  first = *&first;
  EXPECT_EQ(pool.ref_count(second.id()), 2);
}

TEST(PagePoolDeathTest, APageMustNotOutliveItsPool) {
  EXPECT_DEATH(
      {
        PageRef page;
        PagePool pool(1, 16);
        page = *pool.Allocate();
      },
      "pages outlive their pool");
}

}  // namespace
}  // namespace espalier

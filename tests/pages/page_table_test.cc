#include "pages/page_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/page_count.h"
#include "pages/validate.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

std::vector<PageId> Ids(const PageTable& table) {
  std::vector<PageId> ids;
  for (const PageRef& page : table.pages()) ids.push_back(page.id());
  return ids;
}

// k beams that fork from a prompt of `num_prompt_tokens` and all append one
// token: how many tail copies it takes.
size_t NumCopiesOfFork(int num_beams, int num_prompt_tokens, int page_size) {
  PagePool pool(1000, page_size);
  std::vector<PageCopy> copies;
  std::vector<PageTable> beams;
  beams.emplace_back(&pool);
  EXPECT_OK(beams[0].Append(num_prompt_tokens, &copies));
  EXPECT_THAT(copies, IsEmpty());
  for (int i = 1; i < num_beams; ++i) {
    beams.push_back(beams[0].Fork(num_prompt_tokens));
  }
  for (PageTable& beam : beams) EXPECT_OK(beam.Append(1, &copies));
  EXPECT_OK(ValidateCopies(pool, copies));
  for (const PageTable& beam : beams)
    EXPECT_FALSE(beam.pages().back().shared());
  return copies.size();
}

TEST(PageTableTest, BeamsThatShareAPartialTailCostOneCopyLessThanBeams) {
  for (int num_beams : {1, 2, 3, 8, 33}) {
    for (int num_prompt_tokens : {1, 15, 17, 35}) {
      EXPECT_EQ(NumCopiesOfFork(num_beams, num_prompt_tokens, 16),
                num_beams - 1);
    }
  }
}

TEST(PageTableTest, BeamsThatForkAtAPageBoundaryCostNoCopy) {
  for (int num_beams : {1, 2, 8, 33}) {
    EXPECT_EQ(NumCopiesOfFork(num_beams, 32, 16), 0);
    EXPECT_EQ(NumCopiesOfFork(num_beams, 0, 16), 0);
    EXPECT_EQ(NumCopiesOfFork(num_beams, 7, 1), 0);
  }
}

TEST(PageTableTest, ATableHasTheFewestPagesForItsLength) {
  PagePool pool(20, 3);
  PageTable table(&pool);
  std::vector<PageCopy> copies;
  for (int num_tokens = 1; num_tokens <= 20; ++num_tokens) {
    ASSERT_OK(table.Append(1, &copies));
    EXPECT_EQ(table.num_tokens(), num_tokens);
    EXPECT_EQ(table.pages().size(), (num_tokens + 2) / 3);
  }
  EXPECT_THAT(copies, IsEmpty());
}

TEST(PageTableTest, FirstWriterOfASharedTailCopiesAndTheLastWritesInPlace) {
  PagePool pool(10, 4);
  PageTable parent(&pool);
  std::vector<PageCopy> copies;
  ASSERT_OK(parent.Append(6, &copies));
  const std::vector<PageId> before = Ids(parent);
  PageTable child = parent.Fork(6);
  EXPECT_EQ(Ids(child), before);

  ASSERT_OK(child.Append(1, &copies));
  EXPECT_EQ(Ids(child)[0], before[0]);
  EXPECT_NE(Ids(child)[1], before[1]);
  EXPECT_THAT(copies, ElementsAre(PageCopy{before[1], Ids(child)[1], 2}));

  ASSERT_OK(parent.Append(1, &copies));
  EXPECT_EQ(Ids(parent), before);
  EXPECT_EQ(copies.size(), 1);
}

TEST(PageTableTest, AnyTableBecomesAForkAndReleasesWhatItHeld) {
  PagePool pool(20, 4);
  PageTable parent(&pool);
  std::vector<PageCopy> copies;
  ASSERT_OK(parent.Append(10, &copies));
  for (int num_common = 0; num_common <= 10; ++num_common) {
    for (int num_own = 0; num_own <= 9; ++num_own) {
      PageTable child = parent.Fork(num_common);
      ASSERT_OK(child.Append(num_own, &copies));
      child.ForkFrom(parent, 9);
      EXPECT_EQ(child.num_tokens(), 9);
      EXPECT_EQ(Ids(child), Ids(parent));
      EXPECT_THAT(child.page_ids(), ElementsAreArray(Ids(parent)));
      EXPECT_EQ(pool.num_held(), 3);
      child.ForkFrom(parent, 3);
      EXPECT_THAT(child.page_ids(), ElementsAre(Ids(parent)[0]));
    }
  }
  for (const PageId page : Ids(parent)) EXPECT_EQ(pool.ref_count(page), 1);
}

TEST(PageTableTest, AShorterForkCopiesOnlyItsOwnTokensOfTheTail) {
  PagePool pool(10, 4);
  PageTable parent(&pool);
  std::vector<PageCopy> copies;
  ASSERT_OK(parent.Append(8, &copies));
  PageTable child = parent.Fork(5);
  EXPECT_EQ(child.pages().size(), 2);
  ASSERT_OK(child.Append(1, &copies));
  EXPECT_THAT(copies, ElementsAre(PageCopy{Ids(parent)[1], Ids(child)[1], 1}));
}

TEST(PageTableTest, AFullSharedTailIsNeverCopied) {
  PagePool pool(10, 4);
  PageTable parent(&pool);
  std::vector<PageCopy> copies;
  ASSERT_OK(parent.Append(7, &copies));
  PageTable child = parent.Fork(4);
  ASSERT_OK(child.Append(5, &copies));
  EXPECT_THAT(copies, IsEmpty());
  EXPECT_EQ(Ids(child)[0], Ids(parent)[0]);
  EXPECT_EQ(child.pages().size(), 3);
}

TEST(PageTableTest, AppendingNothingToASharedTailCopiesNothing) {
  PagePool pool(10, 4);
  PageTable parent(&pool);
  std::vector<PageCopy> copies;
  ASSERT_OK(parent.Append(3, &copies));
  PageTable child = parent.Fork(3);
  ASSERT_OK(child.Append(0, &copies));
  EXPECT_THAT(copies, IsEmpty());
  EXPECT_EQ(Ids(child), Ids(parent));
}

TEST(PageTableTest, AFailedAppendLeavesTablePoolAndCopiesUnchanged) {
  PagePool pool(4, 4);
  PageTable parent(&pool);
  std::vector<PageCopy> copies;
  ASSERT_OK(parent.Append(6, &copies));
  PageTable child = parent.Fork(6);
  const std::vector<PageId> before = Ids(child);
  // One page for the tail's copy, and two for tokens 8 to 12.
  EXPECT_THAT(child.Append(7, &copies),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "need 3 pages, 2 available"));
  EXPECT_EQ(Ids(child), before);
  EXPECT_EQ(child.num_tokens(), 6);
  EXPECT_THAT(copies, IsEmpty());
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(pool.ref_count(before[1]), 2);
  EXPECT_OK(child.Append(6, &copies));
}

TEST(PageTableTest, ClearReleasesPagesThatNoOtherTableHolds) {
  PagePool pool(10, 4);
  PageTable parent(&pool);
  std::vector<PageCopy> copies;
  ASSERT_OK(parent.Append(10, &copies));
  PageTable child = parent.Fork(5);
  parent.Clear();
  EXPECT_EQ(parent.num_tokens(), 0);
  EXPECT_THAT(parent.pages(), IsEmpty());
  EXPECT_EQ(pool.num_held(), 2);
  child.Clear();
  EXPECT_EQ(pool.num_held(), 0);
}

TEST(PageTableTest, TruncatingReleasesThePagesBehindTheLastToken) {
  PagePool pool(10, 4);
  PageTable table(&pool);
  std::vector<PageCopy> copies;
  ASSERT_OK(table.Append(10, &copies));
  const std::vector<PageId> before = Ids(table);
  const std::vector<std::pair<int, size_t>> lengths = {
      {10, 3}, {9, 3}, {8, 2}, {5, 2}, {4, 1}, {1, 1}, {0, 0}};
  for (const auto& [num_tokens, num_pages] : lengths) {
    table.Truncate(num_tokens);
    EXPECT_EQ(table.num_tokens(), num_tokens);
    EXPECT_EQ(Ids(table),
              std::vector<PageId>(before.begin(), before.begin() + num_pages));
    EXPECT_EQ(pool.num_held(), num_pages);
  }
}

TEST(PageTableTest, ATruncatedTableWritesInPlaceWhatItAloneHolds) {
  PagePool pool(10, 4);
  PageTable table(&pool);
  std::vector<PageCopy> copies;
  ASSERT_OK(table.Append(7, &copies));
  const std::vector<PageId> before = Ids(table);
  table.Truncate(2);
  ASSERT_OK(table.Append(2, &copies));
  EXPECT_THAT(Ids(table), ElementsAre(before[0]));
  EXPECT_THAT(copies, IsEmpty());
}

// The page was full when it was shared, so no writer was expected.
TEST(PageTableTest, WhoTruncatesIntoASharedPageCopiesItBeforeWriting) {
  PagePool pool(10, 4);
  PageTable parent(&pool);
  std::vector<PageCopy> copies;
  ASSERT_OK(parent.Append(8, &copies));
  PageTable child = parent.Fork(8);
  const std::vector<PageId> before = Ids(parent);
  child.Truncate(6);
  EXPECT_EQ(Ids(child), before);  // nothing is copied yet
  EXPECT_THAT(copies, IsEmpty());

  ASSERT_OK(child.Append(1, &copies));
  EXPECT_EQ(Ids(parent), before);
  EXPECT_EQ(Ids(child)[0], before[0]);
  EXPECT_NE(Ids(child)[1], before[1]);
  EXPECT_THAT(copies, ElementsAre(PageCopy{before[1], Ids(child)[1], 2}));
  EXPECT_OK(ValidateCopies(pool, copies));
}

TEST(PageTableTest, TruncatingToAPageBoundaryCostsNoCopy) {
  PagePool pool(10, 4);
  PageTable parent(&pool);
  std::vector<PageCopy> copies;
  ASSERT_OK(parent.Append(6, &copies));
  PageTable child = parent.Fork(6);
  child.Truncate(4);
  EXPECT_EQ(pool.ref_count(Ids(parent)[1]), 1);
  ASSERT_OK(child.Append(1, &copies));
  ASSERT_OK(parent.Append(1, &copies));
  EXPECT_THAT(copies, IsEmpty());
}

TEST(PageTableTest, TakingTheTailLeavesTheFullPages) {
  PagePool pool(10, 4);
  PageTable table(&pool);
  std::vector<PageCopy> copies;
  ASSERT_OK(table.Append(6, &copies));
  const std::vector<PageId> before = Ids(table);
  const PageRef tail = table.DetachTail();
  EXPECT_EQ(tail.id(), before[1]);
  EXPECT_FALSE(tail.shared());
  EXPECT_THAT(Ids(table), ElementsAre(before[0]));
  EXPECT_EQ(table.num_tokens(), 4);
  EXPECT_FALSE(table.DetachTail());  // the rest is full
  EXPECT_EQ(table.num_tokens(), 4);
}

TEST(PageTableTest, ATwinKeepsItsOwnTailAndNothingIsAllocated) {
  PagePool pool(10, 4);
  std::vector<PageCopy> copies;
  PageTable parent(&pool);
  PageTable dead(&pool);
  ASSERT_OK(parent.Append(6, &copies));
  ASSERT_OK(dead.Append(6, &copies));
  const std::vector<PageId> parent_pages = Ids(parent);
  const std::vector<PageId> dead_pages = Ids(dead);
  PageRef parent_tail = parent.DetachTail();
  PageRef dead_tail = dead.DetachTail();

  PageTable twin = parent.Fork(parent.num_tokens());
  dead.Clear();
  parent.AttachTail(std::move(parent_tail), 3);
  twin.AttachTail(std::move(dead_tail), 3);
  EXPECT_THAT(Ids(parent), ElementsAre(parent_pages[0], parent_pages[1]));
  EXPECT_THAT(Ids(twin), ElementsAre(parent_pages[0], dead_pages[1]));
  EXPECT_EQ(twin.num_tokens(), 7);
  EXPECT_EQ(pool.num_held(), 3);
  EXPECT_THAT(copies, IsEmpty());
}

TEST(PageTableTest, ATailMayFillItsPage) {
  PagePool pool(10, 4);
  PageTable table(&pool);
  std::vector<PageCopy> copies;
  table.AttachTail(*pool.Allocate(), 4);
  table.AttachTail(*pool.Allocate(), 1);
  EXPECT_EQ(table.num_tokens(), 5);
  ASSERT_OK(table.Append(3, &copies));
  EXPECT_EQ(table.pages().size(), 2);
}

TEST(PageTableTest, WorstCaseCountsSharedFullPagesOnce) {
  EXPECT_EQ(WorstCasePages(32, 48, 4, 16), 2 + 4 * 1);
  EXPECT_EQ(WorstCasePages(33, 48, 4, 16), 2 + 4 * 1);
  EXPECT_EQ(WorstCasePages(31, 49, 4, 16), 1 + 4 * 3);
  EXPECT_EQ(WorstCasePages(32, 32, 4, 16), 2);
}

TEST(PageTableDeathTest, AForkIsNotLongerThanItsParent) {
  PagePool pool(1, 16);
  PageTable table(&pool);
  EXPECT_DEATH(table.Fork(1), "fork of 1 tokens, there are 0");
}

TEST(PageTableDeathTest, TruncatingMakesNoTableLonger) {
  PagePool pool(1, 16);
  PageTable table(&pool);
  EXPECT_DEATH(table.Truncate(1), "truncation to 1 tokens, there are 0");
  EXPECT_DEATH(table.Truncate(-1), "truncation to -1 tokens, there are 0");
}

TEST(PageTableDeathTest, ATailIsPutAfterFullPagesAndHasOneHolder) {
  PagePool pool(10, 4);
  PageTable table(&pool);
  std::vector<PageCopy> copies;
  PageRef page = *pool.Allocate();
  EXPECT_DEATH(table.AttachTail(PageRef(), 1), "one holder");
  EXPECT_DEATH(table.AttachTail(PageRef(page), 1), "one holder");
  EXPECT_DEATH(table.AttachTail(*pool.Allocate(), 5),
               "5 tokens in a page of 4");
  ASSERT_OK(table.Append(1, &copies));
  EXPECT_DEATH(table.AttachTail(*pool.Allocate(), 1), "in the tail there is");
}

}  // namespace
}  // namespace espalier

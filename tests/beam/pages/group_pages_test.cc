#include "beam/pages/group_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Request PagesRequest(int num_prompt_tokens, int num_beams, int max_new_tokens) {
  Request request;
  request.prompt_tokens.resize(num_prompt_tokens);
  request.params.num_beams = num_beams;
  request.params.max_new_tokens = max_new_tokens;
  return request;
}

std::vector<PageId> PagesOfRank(const GroupPages& pages, int rank) {
  std::vector<PageId> ids;
  for (const PageRef& page : pages.sequence(rank).pages.pages()) {
    ids.push_back(page.id());
  }
  return ids;
}

// Three slots on a pool of 20 pages of 4 tokens.
class GroupPagesTest : public ::testing::Test {
 protected:
  absl::Status Append(const std::vector<int>& num_tokens) {
    return pages_.Append(num_tokens, &plan_.page_copies);
  }
  // A prompt of six tokens, in pages 0 and 1, and its children.
  void StartWith(std::vector<int> parent_ranks) {
    ASSERT_OK(Append({6}));
    pages_.Reorder(parent_ranks, &plan_);
  }

  PagePool pool_{20, 4};
  SequenceIdSource ids_;
  GroupPages pages_{3, 12, &pool_, &ids_};
  StepPlan plan_;
};

TEST_F(GroupPagesTest, BeginsWithOneSequenceInTheFirstSlot) {
  EXPECT_EQ(pages_.num_sequences(), 1);
  EXPECT_THAT(pages_.slots(), ElementsAre(0));
  EXPECT_EQ(pages_.sequence(0).num_tokens(), 0);
  EXPECT_EQ(pool_.num_held(), 0);
}

TEST_F(GroupPagesTest, TheFirstChildKeepsItsParentsSlotAndOthersFork) {
  StartWith({0, 0});
  EXPECT_THAT(pages_.slots(), ElementsAre(0, 1));
  const SequenceId first = pages_.sequence(0).id;
  const SequenceId second = pages_.sequence(1).id;
  EXPECT_THAT(plan_.forks, ElementsAre(SequenceFork{first, second}));
  EXPECT_THAT(plan_.finished, IsEmpty());

  ASSERT_OK(Append({1, 1}));
  EXPECT_THAT(PagesOfRank(pages_, 0), ElementsAre(PageId{0}, PageId{1}));
  EXPECT_THAT(PagesOfRank(pages_, 1), ElementsAre(PageId{0}, PageId{2}));
  EXPECT_THAT(plan_.page_copies,
              ElementsAre(PageCopy{PageId{1}, PageId{2}, 2}));

  // Beam 0 ends, and beam 1 has three children.
  plan_ = StepPlan();
  pages_.Reorder(std::vector<int>{1, 1, 1}, &plan_);
  EXPECT_THAT(pages_.slots(), ElementsAre(1, 0, 2));
  EXPECT_THAT(plan_.finished, ElementsAre(first));
  EXPECT_THAT(plan_.forks, SizeIs(2));
  EXPECT_EQ(pool_.ref_count(PageId{1}), 0);
  EXPECT_EQ(pool_.ref_count(PageId{2}), 3);
}

TEST_F(GroupPagesTest, EachSequenceHasALengthOfItsOwn) {
  StartWith({0, 0, 0});
  ASSERT_OK(Append({3, 2, 1}));
  EXPECT_EQ(pages_.sequence(0).num_tokens(), 9);
  EXPECT_EQ(pages_.sequence(1).num_tokens(), 8);
  EXPECT_EQ(pages_.sequence(2).num_tokens(), 7);
  EXPECT_THAT(plan_.page_copies, SizeIs(2));
  EXPECT_EQ(pool_.num_held(), 1 + 2 + 1 + 1);
}

TEST_F(GroupPagesTest, AChildHasItsParentsLengthWhereverItMoves) {
  StartWith({0, 0, 0});
  ASSERT_OK(Append({2, 1, 4}));  // lengths 8, 7 and 10
  ASSERT_OK(pages_.ReserveTails().status());
  EXPECT_EQ(pages_.sequence(0).num_tokens(), 8);
  pages_.Reorder(std::vector<int>{2, 2, 0}, &plan_);
  EXPECT_EQ(pages_.num_tail_copies_ahead(), 1);
  EXPECT_EQ(pages_.sequence(0).num_tokens(), 11);
  EXPECT_EQ(pages_.sequence(1).num_tokens(), 11);
  EXPECT_EQ(pages_.sequence(2).num_tokens(), 9);
}

TEST_F(GroupPagesTest, ReservedTailsBelongToTheirSlots) {
  ASSERT_OK(Append({6}));
  ASSERT_OK_AND_ASSIGN(SmallVector<PageId> tails, pages_.ReserveTails());
  EXPECT_THAT(tails, ElementsAre(PageId{1}, PageId{2}, PageId{3}));
  // The length is known while the step is on its way.
  EXPECT_EQ(pages_.sequence(0).num_tokens(), 6);
  pages_.Reorder(std::vector<int>{0, 0}, &plan_);
  EXPECT_THAT(plan_.forks, IsEmpty());
  EXPECT_EQ(pages_.num_tail_copies_ahead(), 1);
  EXPECT_THAT(PagesOfRank(pages_, 0), ElementsAre(PageId{0}, PageId{1}));
  EXPECT_THAT(PagesOfRank(pages_, 1), ElementsAre(PageId{0}, PageId{2}));
  EXPECT_EQ(pages_.sequence(1).num_tokens(), 7);
  EXPECT_THAT(pages_.Tails(), SizeIs(1));  // slot 2 waits for a sequence

  // It is the same page as long as slot 2 is without one.
  ASSERT_OK_AND_ASSIGN(tails, pages_.ReserveTails());
  EXPECT_THAT(tails, ElementsAre(PageId{1}, PageId{2}, PageId{3}));
  pages_.Reorder(std::vector<int>{1, 0}, &plan_);
  EXPECT_EQ(pages_.num_tail_copies_ahead(), 0);

  // A page begins: two fresh tails, and a fork copies nothing.
  ASSERT_OK_AND_ASSIGN(tails, pages_.ReserveTails());
  EXPECT_THAT(tails, ElementsAre(PageId{4}, PageId{5}, PageId{3}));
  pages_.Reorder(std::vector<int>{1, 1, 1}, &plan_);
  EXPECT_EQ(pages_.num_tail_copies_ahead(), 0);
  EXPECT_THAT(pages_.Tails(), IsEmpty());
  EXPECT_EQ(pages_.sequence(2).num_tokens(), 9);
}

TEST_F(GroupPagesTest, WithoutAStepAheadNoSlotKeepsATail) {
  ASSERT_OK(Append({6}));
  ASSERT_OK(pages_.ReserveTails().status());
  pages_.Reorder(std::vector<int>{0, 0}, &plan_);
  EXPECT_EQ(pool_.num_held(), 4);
  pages_.Reorder(std::vector<int>{0, 1}, &plan_);
  EXPECT_EQ(pages_.num_tail_copies_ahead(), 0);
  EXPECT_THAT(pages_.Tails(), IsEmpty());
  EXPECT_EQ(pool_.num_held(), 3);
}

TEST_F(GroupPagesTest, PagesAreNamedBySlot) {
  ASSERT_OK(Append({8}));
  ASSERT_OK(pages_.ReserveTails().status());
  const std::vector<HeldPages> held = pages_.PagesBySlot();
  ASSERT_THAT(held, SizeIs(3));
  EXPECT_THAT(held[0].pages, ElementsAre(PageId{0}, PageId{1}, PageId{2}));
  EXPECT_EQ(held[2].slot, 2);
  EXPECT_THAT(held[2].pages, ElementsAre(PageId{4}));
}

TEST_F(GroupPagesTest, AnEmptyPoolLeavesTheCopiesUnchanged) {
  StartWith({0, 0, 0});
  std::vector<PageRef> thief;  // leaves one page for the two tail copies
  while (pool_.num_free() > 1) thief.push_back(*pool_.Allocate());
  plan_.page_copies = {PageCopy{}};
  EXPECT_THAT(Append({1, 1, 1}), StatusIs(absl::StatusCode::kResourceExhausted,
                                          "need 1 pages, 0 available"));
  EXPECT_THAT(plan_.page_copies, ElementsAre(PageCopy{}));
  pages_.Release(nullptr);
  EXPECT_EQ(pool_.num_held(), thief.size());
}

TEST_F(GroupPagesTest, AnEmptyPoolHasNoTails) {
  ASSERT_OK(Append({8}));
  std::vector<PageRef> thief;
  while (pool_.num_free() > 1) thief.push_back(*pool_.Allocate());
  EXPECT_THAT(
      pages_.ReserveTails().status(),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("free")));
  pages_.Release(nullptr);
  EXPECT_EQ(pool_.num_held(), thief.size());
}

TEST_F(GroupPagesTest, ReleaseNamesWhoLivedAndGivesBackEverything) {
  StartWith({0, 0});
  ASSERT_OK(Append({1, 1}));
  ASSERT_OK(pages_.ReserveTails().status());
  const SequenceId first = pages_.sequence(0).id;
  const SequenceId second = pages_.sequence(1).id;
  std::vector<SequenceId> finished;
  pages_.Release(&finished);
  EXPECT_THAT(finished, ElementsAre(first, second));
  EXPECT_EQ(pages_.num_sequences(), 0);
  EXPECT_EQ(pool_.num_held(), 0);
  EXPECT_THAT(pages_.PagesBySlot(), IsEmpty());
}

TEST(GroupPagesWorstCaseTest, LeavesOutTheLastToken) {
  const auto worst = [](int num_prompt_tokens, int max_new_tokens) {
    return GroupPages::WorstCase(
        PagesRequest(num_prompt_tokens, 3, max_new_tokens), 4);
  };
  EXPECT_EQ(worst(4, 5), 1 + 3 * 1);
  EXPECT_EQ(worst(4, 6), 1 + 3 * 2);
  EXPECT_EQ(worst(3, 2), 3);
  EXPECT_EQ(worst(3, 1), 1);
}

using GroupPagesDeathTest = GroupPagesTest;

TEST_F(GroupPagesDeathTest, AStepIsPlannedOnceAndHasASlotForEachSequence) {
  ASSERT_OK(Append({6}));
  EXPECT_DEATH((void)Append({1, 1}), "sequences to grow");
  EXPECT_DEATH(pages_.Reorder({}, &plan_), "0 sequences in 3 slots");
  EXPECT_DEATH(pages_.Reorder(std::vector<int>(4), &plan_),
               "4 sequences in 3 slots");
  pages_.Reorder(std::vector<int>{0, 0}, &plan_);
  EXPECT_DEATH((void)pages_.ReserveTails(), "has fed nothing");
  ASSERT_OK(Append({1, 1}));
  ASSERT_OK(pages_.ReserveTails().status());
  EXPECT_DEATH((void)Append({1, 1}), "planned ahead");
  EXPECT_DEATH((void)pages_.ReserveTails(), "planned ahead");
}

TEST_F(GroupPagesTest, RowsOfASequenceForkItAndOneOfThemIsIt) {
  StartWith({0, 0});
  ASSERT_OK(Append({1, 1}));  // page 1 of rank 0, page 2 of rank 1: 7 tokens
  plan_ = StepPlan();
  const std::vector<int> ranks = {0, 0, 1, 1};
  const std::vector<int> num_tokens = {1, 3, 2, 2};
  const SequenceId first = pages_.sequence(0).id;
  const SequenceId second = pages_.sequence(1).id;
  const int64_t num_held = pool_.num_held();
  const int64_t num_pages = pages_.NumPagesToAppendRows(ranks, num_tokens);
  ASSERT_OK(pages_.AppendRows(ranks, num_tokens, &plan_));
  EXPECT_EQ(pool_.num_held(), num_held + num_pages);
  EXPECT_EQ(pages_.num_sequences(), 2);
  EXPECT_EQ(pages_.row(0).id, first);
  EXPECT_EQ(pages_.row(2).id, second);
  EXPECT_THAT(plan_.forks, ElementsAre(SequenceFork{first, pages_.row(1).id},
                                       SequenceFork{second, pages_.row(3).id}));
  // Each fork copies the three tokens in the tail, and the other writes there.
  ASSERT_THAT(plan_.page_copies, SizeIs(2));
  EXPECT_EQ(plan_.page_copies[0].from, PageId{2});
  EXPECT_EQ(plan_.page_copies[1].from, PageId{1});
  EXPECT_EQ(plan_.page_copies[1].num_tokens, 3);
  EXPECT_EQ(pages_.row(1).num_tokens(), 10);

  // Both beams go on on paths of the second one, then one of them twice.
  const SequenceId third = pages_.row(3).id;
  plan_ = StepPlan();
  pages_.FollowRows(std::vector<int>{3, 2});
  EXPECT_EQ(pages_.sequence(0).id, third);
  pages_.MergeRows(9, &plan_);
  EXPECT_THAT(plan_.finished, SizeIs(2));
  EXPECT_THAT(plan_.finished, Contains(first));
  EXPECT_EQ(pages_.sequence(0).num_tokens(), 9);
  EXPECT_EQ(pages_.max_pages(), 12);
  pages_.Reorder(std::vector<int>{0, 0}, &plan_);
  EXPECT_EQ(pages_.sequence(0).id, third);
  EXPECT_THAT(plan_.forks,
              ElementsAre(SequenceFork{third, pages_.sequence(1).id}));
  for (const int slot : pages_.slots()) EXPECT_LT(slot, pages_.num_slots());
  // Page 0 is both beams'; 9 tokens are 3 pages.
  EXPECT_EQ(pool_.num_held(), 3);
}

TEST_F(GroupPagesTest, ReleaseGivesRowsBack) {
  StartWith({0, 0, 0});
  ASSERT_OK(pages_.AppendRows(std::vector<int>{0, 1, 1, 2, 2},
                              std::vector<int>{1, 5, 5, 1, 9}, &plan_));
  std::vector<SequenceId> finished;
  pages_.Release(&finished);
  EXPECT_THAT(finished, SizeIs(5));
  EXPECT_EQ(pool_.num_held(), 0);
}

TEST_F(GroupPagesTest, RowsOfAPreemptedGroupAreGone) {
  StartWith({0, 0});
  ASSERT_OK(pages_.AppendRows(std::vector<int>{0, 0, 1},
                              std::vector<int>{2, 2, 2}, &plan_));
  pages_.Preempt(2, {}, /*names_end=*/true, &plan_);
  EXPECT_THAT(plan_.finished, SizeIs(3));
  EXPECT_EQ(pool_.num_held(), 0);
  pages_.FollowRows(std::vector<int>{1});
  pages_.MergeRows(7, &plan_);
  pages_.Reorder(std::vector<int>{0, 0, 0}, &plan_);
  EXPECT_EQ(pages_.num_sequences(), 3);
  pages_.Restart();
  EXPECT_FALSE(pages_.has_rows());
}

}  // namespace
}  // namespace espalier

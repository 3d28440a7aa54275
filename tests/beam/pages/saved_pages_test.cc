#include "beam/pages/saved_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// Two beams that share a page of 4 tokens, and have one of 2 tokens each.
class SavedPagesTest : public ::testing::Test {
 protected:
  SavedPagesTest() {
    std::vector<PageCopy> copies;
    EXPECT_OK(first_.Append(4, &copies));
    second_ = first_.Fork(4);
    EXPECT_OK(first_.Append(2, &copies));
    EXPECT_OK(second_.Append(2, &copies));
  }
  bool Save(PageSaving saving) {
    return saved_.Save(std::vector<const PageTable*>{&first_, &second_}, 2,
                       saving, &saves_);
  }
  PageId PageOf(const PageTable& table, int place) const {
    return table.pages()[place].id();
  }

  PagePool pool_{10, 4};
  HostPool host_{10};
  PageTable first_{&pool_};
  PageTable second_{&pool_};
  SavedPages saved_;
  std::vector<PageSave> saves_;
};

TEST_F(SavedPagesTest, ASharedPageIsSavedOnce) {
  EXPECT_TRUE(Save({&host_}));
  ASSERT_THAT(saves_, SizeIs(3));
  EXPECT_EQ(saves_[0].page, PageOf(first_, 0));
  EXPECT_EQ(host_.num_held(), 3);
  EXPECT_EQ(saved_.Find(0, 0)->slot.id(), saved_.Find(1, 0)->slot.id());
  EXPECT_NE(saved_.Find(0, 1)->slot.id(), saved_.Find(1, 1)->slot.id());
  EXPECT_EQ(saved_.Find(0, 0)->num_tokens, 4);
  EXPECT_EQ(saved_.Find(1, 1)->num_tokens, 2);
  EXPECT_EQ(saved_.Find(0, 2), nullptr);
  EXPECT_THAT(saved_.Slots(), SizeIs(4));
  saved_.Clear();
  EXPECT_EQ(host_.num_held(), 0);
}

TEST_F(SavedPagesTest, WithoutAPoolNothingIsSaved) {
  EXPECT_FALSE(Save({}));
  EXPECT_TRUE(saved_.empty());
  EXPECT_THAT(saves_, IsEmpty());
}

TEST_F(SavedPagesTest, PagesOfFewTokensAndThoseOfOthersAreLeftOut) {
  const PageRef other = first_.pages()[0];
  EXPECT_TRUE(Save({&host_, 2}));
  EXPECT_EQ(saved_.Find(0, 0), nullptr);
  EXPECT_EQ(saved_.NextAfter(0, 0), 1);
  EXPECT_EQ(saved_.NextAfter(0, 1), -1);
  saved_.Clear();
  EXPECT_FALSE(Save({&host_, 3}));
  EXPECT_EQ(host_.num_held(), 0);
}

TEST_F(SavedPagesTest, APageThatACacheHoldsBesidesIsLostAllTheSame) {
  const PageRef cached = first_.pages()[0];
  pool_.SetCached(cached.id(), true);
  EXPECT_TRUE(Save({&host_, 4}));
  ASSERT_THAT(saves_, SizeIs(1));
  EXPECT_EQ(saves_[0].page, cached.id());
  pool_.SetCached(cached.id(), false);
}

TEST_F(SavedPagesTest, TheFirstPagesHaveTheSlotsThatThereAre) {
  HostPool few(2);
  EXPECT_TRUE(Save({&few}));
  EXPECT_NE(saved_.Find(1, 0), nullptr);
  EXPECT_NE(saved_.Find(0, 1), nullptr);
  EXPECT_EQ(saved_.Find(1, 1), nullptr);
  saved_.Clear();
}

TEST_F(SavedPagesTest, ChildrenHaveWhatTheirParentsHad) {
  EXPECT_TRUE(Save({&host_}));
  const HostSlotId tail = saved_.Find(1, 1)->slot.id();
  saved_.Reorder(std::vector<int>{1, 1, 1});
  EXPECT_EQ(host_.num_held(), 2);
  EXPECT_EQ(host_.ref_count(tail), 3);
  EXPECT_EQ(saved_.Find(2, 1)->slot.id(), tail);
  EXPECT_THAT(saved_.SlotIds(), ::testing::Contains(tail));
}

TEST_F(SavedPagesTest, WhatHasGrownSinceIsSavedAgain) {
  EXPECT_TRUE(Save({&host_}));
  saves_.clear();
  EXPECT_FALSE(Save({&host_}));
  std::vector<PageCopy> copies;
  ASSERT_OK(second_.Append(1, &copies));
  EXPECT_TRUE(Save({&host_}));
  ASSERT_THAT(saves_, SizeIs(1));
  EXPECT_EQ(saves_[0].page, PageOf(second_, 1));
  EXPECT_EQ(saved_.Find(1, 1)->num_tokens, 3);
  EXPECT_EQ(host_.num_held(), 3);
}

// As before its branches are forked.
TEST_F(SavedPagesTest, OneTableIsThatOfAllRanks) {
  EXPECT_TRUE(saved_.Save(std::vector<const PageTable*>{&first_}, 3, {&host_},
                          &saves_));
  EXPECT_THAT(saves_, SizeIs(1));  // the page that no other table has
  EXPECT_EQ(saved_.Find(2, 1)->slot.id(), saved_.Find(0, 1)->slot.id());
}

}  // namespace
}  // namespace espalier

// Every law is broken once, so that a validator which overlooks it fails.
#include "pages/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/status_matchers.h"

namespace espalier {

class PageTablePeer {
 public:
  static std::vector<PageRef>& pages(PageTable& table) { return table.pages_; }
  static int& num_tokens(PageTable& table) { return table.num_tokens_; }
};

namespace {

using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Test;

auto IsInternal(const char* message) {
  return StatusIs(absl::StatusCode::kInternal, HasSubstr(message));
}

// Two tables of 6 tokens in pages of 4, sharing both pages: 0 and 1.
class ValidateTest : public Test {
 protected:
  ValidateTest() {
    EXPECT_OK(first_.Append(6, &copies_));
    second_ = first_.Fork(6);
  }
  absl::Status Validate(std::vector<const PageTable*> tables,
                        std::vector<const PageRef*> tails = {}) {
    return ValidatePages(pool_, tables, tails);
  }

  PagePool pool_{10, 4};
  PageTable first_{&pool_};
  PageTable second_{&pool_};
  std::vector<PageCopy> copies_;
};

TEST_F(ValidateTest, SoundPagesPass) {
  EXPECT_OK(Validate({&first_, &second_}));
  EXPECT_OK(second_.Append(3, &copies_));
  EXPECT_OK(Validate({&second_, &first_}));
  EXPECT_OK(ValidateCopies(pool_, copies_));
}

TEST_F(ValidateTest, AMissingTableIsFound) {
  EXPECT_THAT(Validate({&first_}),
              IsInternal("page 0 counts 2 holders and has 1"));
}

TEST_F(ValidateTest, ATableGivenTwiceIsFound) {
  EXPECT_THAT(Validate({&first_, &first_, &second_}),
              IsInternal("page 0 counts 2 holders and has 3"));
}

TEST_F(ValidateTest, AHolderOutsideTheTablesIsFound) {
  const PageRef leak = first_.pages()[1];
  EXPECT_THAT(Validate({&first_, &second_}),
              IsInternal("page 1 counts 3 holders and has 2"));
}

TEST_F(ValidateTest, ATableWithTooFewPagesIsFound) {
  PageTablePeer::pages(second_).pop_back();
  EXPECT_THAT(Validate({&first_, &second_}),
              IsInternal("table 1 of 6 tokens needs 2 pages and has 1"));
}

TEST_F(ValidateTest, ATableWithTooManyPagesIsFound) {
  PageTablePeer::num_tokens(first_) = 4;
  EXPECT_THAT(Validate({&first_, &second_}),
              IsInternal("table 0 of 4 tokens needs 1 pages and has 2"));
}

TEST_F(ValidateTest, APageTwiceInOneTableIsFound) {
  PageTablePeer::pages(second_)[1] = first_.pages()[0];
  EXPECT_THAT(Validate({&first_, &second_}),
              IsInternal("table 1 has page 0 twice"));
}

TEST_F(ValidateTest, APageOfAnotherPoolIsFound) {
  PagePool other(10, 4);
  PageTable stranger(&other);
  EXPECT_OK(stranger.Append(1, &copies_));
  EXPECT_THAT(Validate({&first_, &second_, &stranger}),
              IsInternal("table 2 has a page of another pool"));
}

TEST_F(ValidateTest, ATailHasAHolderAndOneOnly) {
  ASSERT_OK(second_.Append(1, &copies_));
  const PageRef tail = second_.DetachTail();
  EXPECT_OK(Validate({&first_, &second_}, {&tail}));
  EXPECT_THAT(Validate({&first_, &second_}),
              IsInternal("page 2 counts 1 holders and has 0"));
  const PageRef twin = tail;
  EXPECT_THAT(Validate({&first_, &second_}, {&tail, &twin}),
              IsInternal("tail 0, page 2, has 2 holders"));
}

TEST_F(ValidateTest, ATailThatHoldsNothingIsFound) {
  const PageRef nothing;
  EXPECT_THAT(Validate({&first_, &second_}, {&nothing}),
              IsInternal("tail 0 is no page of the pool"));
}

TEST_F(ValidateTest, AGroupHoldsNoMoreThanItsShare) {
  ASSERT_OK(second_.Append(3, &copies_));  // a tail copy and a page
  const PageRef tail = *pool_.Allocate();
  const PageTable* tables[] = {&first_, &second_};
  const PageRef* tails[] = {&tail};
  EXPECT_OK(ValidateNumHeld(tables, tails, 5));
  EXPECT_THAT(ValidateNumHeld(tables, tails, 4),
              IsInternal("a group holds 5 pages, at most 4 are its share"));
  EXPECT_OK(ValidateNumHeld(tables, {}, 4));
}

class ValidateCopiesTest : public Test {
 protected:
  ValidateCopiesTest() {
    for (int i = 0; i < 4; ++i) held_.push_back(*pool_.Allocate());
  }
  absl::Status Validate(std::vector<PageCopy> copies) {
    return ValidateCopies(pool_, copies);
  }
  PageId id(int i) const { return held_[i].id(); }

  PagePool pool_{10, 4};
  std::vector<PageRef> held_;
};

TEST_F(ValidateCopiesTest, OneSourceMayHaveManyDestinations) {
  EXPECT_OK(Validate({{id(0), id(1), 1}, {id(0), id(2), 3}}));
}

TEST_F(ValidateCopiesTest, ADestinationTwiceIsFound) {
  EXPECT_THAT(Validate({{id(0), id(2), 1}, {id(1), id(2), 1}}),
              IsInternal("page 2 is copied to twice"));
}

TEST_F(ValidateCopiesTest, ADestinationThatIsASourceIsFound) {
  EXPECT_THAT(Validate({{id(0), id(1), 1}, {id(1), id(2), 1}}),
              IsInternal("page 1 is copied from and to"));
  EXPECT_THAT(Validate({{id(1), id(2), 1}, {id(0), id(1), 1}}),
              IsInternal("page 1 is copied from and to"));
  EXPECT_THAT(Validate({{id(1), id(1), 1}}),
              IsInternal("page 1 is copied from and to"));
}

TEST_F(ValidateCopiesTest, AnEmptyOrFullCopyIsFound) {
  EXPECT_THAT(Validate({{id(0), id(1), 0}}),
              IsInternal("copy 0 -> 1 of 0 tokens in pages of 4"));
  EXPECT_THAT(Validate({{id(0), id(1), 4}}),
              IsInternal("copy 0 -> 1 of 4 tokens in pages of 4"));
}

TEST_F(ValidateCopiesTest, ASharedOrFreeDestinationIsFound) {
  const PageRef twin = held_[1];
  EXPECT_THAT(Validate({{id(0), id(1), 1}}),
              IsInternal("page 1 is copied to and has 2 holders"));
  EXPECT_THAT(Validate({{id(0), PageId{9}, 1}}),
              IsInternal("page 9 is copied to and has 0 holders"));
}

TEST_F(ValidateCopiesTest, APageOutsideThePoolIsFound) {
  EXPECT_THAT(Validate({{PageId{-1}, id(1), 1}}),
              IsInternal("copy -1 -> 1 in a pool of 10 pages"));
  EXPECT_THAT(Validate({{id(0), PageId{10}, 1}}),
              IsInternal("copy 0 -> 10 in a pool of 10 pages"));
}

TEST(ValidateWritesTest, AWrittenPageHasOneHolder) {
  PagePool pool(8, 4);
  PageTable parent(&pool);
  std::vector<PageCopy> copies;
  ASSERT_OK(parent.Append(6, &copies));
  const PageTable child = parent.Fork(6);
  const std::vector<PageId> pages = {parent.pages()[0].id(),
                                     parent.pages()[1].id()};
  // Position 6 lies in the second page, which both hold.
  EXPECT_THAT(ValidateWrites(pool, pages, 6, 1),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("2 holders")));
  ASSERT_OK(parent.Append(1, &copies));
  EXPECT_OK(ValidateWrites(pool, std::vector{pages[0], parent.pages()[1].id()},
                           6, 1));
  // Reading the shared first page is fine, writing it is not.
  EXPECT_THAT(ValidateWrites(pool, pages, 3, 1),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("2 holders")));
  EXPECT_THAT(
      ValidateWrites(pool, pages, 8, 1),
      StatusIs(absl::StatusCode::kInternal, HasSubstr("up to position 9")));
}

TEST(ValidateTailsTest, EveryTailBelongsToOneSlot) {
  PagePool pool(8, 4);
  const PageRef first = *pool.Allocate();
  PageRef second = *pool.Allocate();
  const auto validate = [&](std::vector<PageId> tails) {
    return ValidateTails(pool, tails);
  };
  EXPECT_OK(validate({first.id(), second.id()}));
  EXPECT_THAT(validate({first.id(), second.id(), first.id()}),
              IsInternal("page 0 is a tail twice"));
  EXPECT_THAT(validate({PageId{8}}), IsInternal("tail 8 in a pool of 8 pages"));
  const PageRef other = second;
  EXPECT_THAT(validate({second.id()}), IsInternal("tail 1 has 2 holders"));
  EXPECT_THAT(validate({PageId{5}}), IsInternal("tail 5 has 0 holders"));
}

// Two slots are held, one of them twice, and two pages.
class ValidateSwapsTest : public Test {
 protected:
  absl::Status ValidateHeld(std::vector<const HostSlot*> held) {
    return ValidateHostSlots(host_, held);
  }
  absl::Status Validate(std::vector<PageSave> saves,
                        std::vector<PageLoad> loads,
                        std::vector<PageCopy> copies = {}) {
    return ValidateSwaps(pool_, host_, saves, loads, copies);
  }

  PagePool pool_{8, 4};
  HostPool host_{4};
  const PageRef pages_[2] = {*pool_.Allocate(), *pool_.Allocate()};
  const PageId page_ = pages_[0].id();
  const HostSlot first_ = host_.Take();
  const HostSlot second_ = host_.Take();
  const HostSlot twin_ = second_;
};

TEST_F(ValidateSwapsTest, HeldSlotsAreThoseOfTheirHolders) {
  EXPECT_OK(ValidateHeld({&first_, &second_, &twin_}));
  EXPECT_THAT(ValidateHeld({&first_, &second_}),
              IsInternal("host slot 1 counts 2 holders and has 1"));
  EXPECT_THAT(ValidateHeld({&second_, &twin_}),
              IsInternal("host slot 0 counts 1 holders and has 0"));
  HostPool other(1);
  const HostSlot stranger = other.Take();
  EXPECT_THAT(ValidateHeld({&first_, &second_, &twin_, &stranger}),
              IsInternal("of another pool"));
}

TEST_F(ValidateSwapsTest, SwapsOfAStepDoNotTouchEachOther) {
  const HostSlotId a = first_.id();
  const HostSlotId b = second_.id();
  // A page that was saved is free for others.
  EXPECT_OK(Validate({{page_, a}, {PageId{7}, b}}, {}));
  EXPECT_OK(Validate({{page_, a}}, {{b, page_}}));
  EXPECT_THAT(Validate({{page_, a}}, {{a, page_}}),
              IsInternal("host slot 0 is swapped with twice"));
  EXPECT_THAT(Validate({{page_, a}, {page_, a}}, {}),
              IsInternal("host slot 0 is swapped with twice"));
  EXPECT_THAT(Validate({{page_, HostSlotId{3}}}, {}),
              IsInternal("host slot 3 is swapped with and free"));
  EXPECT_THAT(Validate({{page_, HostSlotId{4}}}, {}),
              IsInternal("host slot 4 of 4"));
  EXPECT_THAT(Validate({{PageId{8}, a}}, {}), IsInternal("page 8"));
  EXPECT_THAT(Validate({}, {{a, PageId{7}}}),
              IsInternal("page 7 is loaded into and free"));
  EXPECT_THAT(Validate({}, {{a, page_}, {b, page_}}),
              IsInternal("page 0 is loaded into and written again"));
  EXPECT_THAT(Validate({}, {{a, page_}}, {{pages_[1].id(), page_, 2}}),
              IsInternal("page 0 is loaded into and written again"));
  EXPECT_OK(Validate({}, {{a, page_}}, {{page_, pages_[1].id(), 2}}));
}

}  // namespace
}  // namespace espalier

// A group's pages alone: what each call does to slots and tables, and, over
// random searches, the laws of pages and a model without any.
#include "beam/group_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "pages/validate.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
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
  // A prompt of six tokens, in pages 0 and 1, and its children.
  void StartWith(std::vector<int> parent_ranks) {
    ASSERT_OK(pages_.Append(6, &plan_.page_copies));
    pages_.Reorder(parent_ranks, &plan_);
  }

  PagePool pool_{20, 4};
  SequenceIdSource ids_;
  GroupPages pages_{3, *pool_.Reserve(12), &pool_, &ids_};
  StepPlan plan_;
};

TEST_F(GroupPagesTest, BeginsWithOneSequenceInTheFirstSlot) {
  EXPECT_EQ(pages_.num_sequences(), 1);
  EXPECT_THAT(pages_.slots(), ElementsAre(0));
  EXPECT_EQ(pages_.sequence(0).pages.num_tokens(), 0);
  EXPECT_EQ(pages_.num_reserved_pages(), 12);
  EXPECT_EQ(pool_.num_held(), 0);
}

TEST_F(GroupPagesTest, TheFirstChildKeepsItsParentsSlotAndOthersFork) {
  StartWith({0, 0});
  EXPECT_THAT(pages_.slots(), ElementsAre(0, 1));
  const SequenceId first = pages_.sequence(0).id;
  const SequenceId second = pages_.sequence(1).id;
  EXPECT_THAT(plan_.forks, ElementsAre(SequenceFork{first, second}));
  EXPECT_THAT(plan_.finished, IsEmpty());

  ASSERT_OK(pages_.Append(1, &plan_.page_copies));
  EXPECT_THAT(PagesOfRank(pages_, 0), ElementsAre(PageId{0}, PageId{1}));
  EXPECT_THAT(PagesOfRank(pages_, 1), ElementsAre(PageId{0}, PageId{2}));
  EXPECT_THAT(plan_.page_copies,
              ElementsAre(PageCopy{PageId{1}, PageId{2}, 2}));

  // The first one ends, the second goes on three times.
  plan_ = StepPlan();
  pages_.Reorder(std::vector<int>{1, 1, 1}, &plan_);
  EXPECT_THAT(pages_.slots(), ElementsAre(1, 0, 2));
  EXPECT_THAT(plan_.finished, ElementsAre(first));
  EXPECT_THAT(plan_.forks, SizeIs(2));
  EXPECT_EQ(pool_.ref_count(PageId{1}), 0);
  EXPECT_EQ(pool_.ref_count(PageId{2}), 3);
}

TEST_F(GroupPagesTest, AllThatLiveGrowTogether) {
  StartWith({0, 0, 0});
  ASSERT_OK(pages_.Append(3, &plan_.page_copies));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(pages_.sequence(rank).pages.num_tokens(), 9);
  }
  EXPECT_THAT(plan_.page_copies, SizeIs(2));
  EXPECT_EQ(pool_.num_held(), 1 + 3 * 2);
}

TEST_F(GroupPagesTest, ReservedTailsBelongToTheirSlots) {
  ASSERT_OK(pages_.Append(6, &plan_.page_copies));
  ASSERT_OK_AND_ASSIGN(std::vector<PageId> tails, pages_.ReserveTails());
  EXPECT_THAT(tails, ElementsAre(PageId{1}, PageId{2}, PageId{3}));
  // The length is known while the step is on its way.
  EXPECT_EQ(pages_.sequence(0).pages.num_tokens(), 6);
  pages_.Reorder(std::vector<int>{0, 0}, &plan_);
  EXPECT_THAT(plan_.forks, IsEmpty());
  EXPECT_EQ(pages_.num_tail_copies_ahead(), 1);
  EXPECT_THAT(PagesOfRank(pages_, 0), ElementsAre(PageId{0}, PageId{1}));
  EXPECT_THAT(PagesOfRank(pages_, 1), ElementsAre(PageId{0}, PageId{2}));
  EXPECT_EQ(pages_.sequence(1).pages.num_tokens(), 7);
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
  EXPECT_EQ(pages_.sequence(2).pages.num_tokens(), 9);
}

TEST_F(GroupPagesTest, WithoutAStepAheadNoSlotKeepsATail) {
  ASSERT_OK(pages_.Append(6, &plan_.page_copies));
  ASSERT_OK(pages_.ReserveTails().status());
  pages_.Reorder(std::vector<int>{0, 0}, &plan_);
  EXPECT_EQ(pool_.num_held(), 4);
  pages_.Reorder(std::vector<int>{0, 1}, &plan_);
  EXPECT_EQ(pages_.num_tail_copies_ahead(), 0);
  EXPECT_THAT(pages_.Tails(), IsEmpty());
  EXPECT_EQ(pool_.num_held(), 3);
}

TEST_F(GroupPagesTest, PagesAreNamedBySlot) {
  ASSERT_OK(pages_.Append(8, &plan_.page_copies));
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
  EXPECT_THAT(
      pages_.Append(1, &plan_.page_copies),
      StatusIs(absl::StatusCode::kResourceExhausted, "need 1 pages, 0 free"));
  EXPECT_THAT(plan_.page_copies, ElementsAre(PageCopy{}));
  pages_.Release(nullptr);
  EXPECT_EQ(pool_.num_held(), thief.size());
}

TEST_F(GroupPagesTest, AnEmptyPoolHasNoTails) {
  ASSERT_OK(pages_.Append(8, &plan_.page_copies));
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
  ASSERT_OK(pages_.Append(1, &plan_.page_copies));
  ASSERT_OK(pages_.ReserveTails().status());
  const SequenceId first = pages_.sequence(0).id;
  const SequenceId second = pages_.sequence(1).id;
  std::vector<SequenceId> finished;
  pages_.Release(&finished);
  EXPECT_THAT(finished, ElementsAre(first, second));
  EXPECT_EQ(pages_.num_sequences(), 0);
  EXPECT_EQ(pages_.num_reserved_pages(), 0);
  EXPECT_EQ(pool_.num_held(), 0);
  EXPECT_EQ(pool_.num_reserved(), 0);
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
  ASSERT_OK(pages_.Append(6, &plan_.page_copies));
  EXPECT_DEATH(pages_.Reorder({}, &plan_), "0 sequences in 3 slots");
  EXPECT_DEATH(pages_.Reorder(std::vector<int>(4), &plan_),
               "4 sequences in 3 slots");
  ASSERT_OK(pages_.ReserveTails().status());
  EXPECT_DEATH((void)pages_.Append(1, &plan_.page_copies), "planned ahead");
  EXPECT_DEATH((void)pages_.ReserveTails(), "planned ahead");
}

// A group's pages, the memory behind them, which sees only what plans say, and
// each sequence by rank as a plain vector of tokens.
class GroupPagesWorld {
 public:
  GroupPagesWorld(const Request& request, int num_slots, int page_size)
      : num_slots_(num_slots),
        page_size_(page_size),
        pool_(static_cast<int>(GroupPages::WorstCase(request, page_size)),
              page_size),
        pages_(num_slots, *pool_.Reserve(pool_.num_pages()), &pool_, &ids_),
        memory_(pool_.num_pages() * page_size, -1),
        sequences_(1) {}

  void FeedPrompt(int num_tokens) {
    Append(num_tokens);
    Check();
  }

  // A step planned from the answer.
  void Step(const std::vector<int>& parent_ranks) {
    StepPlan plan;
    pages_.Reorder(parent_ranks, &plan);
    Follow(parent_ranks);
    Check();
    Append(1);
    Check();
  }

  // A step planned before the answer, and run by an executor that moves
  // sequences itself.
  void StepAhead(const std::vector<int>& parent_ranks) {
    const absl::StatusOr<std::vector<PageId>> tails = pages_.ReserveTails();
    RC_ASSERT(Message(tails.status()) == "");
    RC_ASSERT(Message(ValidateTails(pool_, *tails)) == "");
    Check();
    const std::vector<int> old_slots = pages_.slots();
    StepPlan plan;
    pages_.Reorder(parent_ranks, &plan);
    RC_ASSERT(plan.forks.empty());
    std::vector<PageCopy> copies;
    for (size_t rank = 0; rank < parent_ranks.size(); ++rank) {
      const int num_tokens =
          static_cast<int>(sequences_[parent_ranks[rank]].size()) % page_size_;
      const PageId from = (*tails)[old_slots[parent_ranks[rank]]];
      const PageId to = (*tails)[pages_.slots()[rank]];
      if (from != to && num_tokens > 0)
        copies.push_back({from, to, num_tokens});
    }
    RC_ASSERT(static_cast<int>(copies.size()) ==
              pages_.num_tail_copies_ahead());
    MakeCopies(copies);
    Follow(parent_ranks);
    for (int rank = 0; rank < pages_.num_sequences(); ++rank) Write(rank);
    Check();
  }

  int num_sequences() const { return pages_.num_sequences(); }
  int num_copies() const { return num_copies_; }
  bool held_worst_case() const { return max_held_ == pool_.num_pages(); }
  void Release() {
    std::vector<SequenceId> finished;
    const size_t num_live = pages_.num_sequences();
    pages_.Release(&finished);
    RC_ASSERT(finished.size() == num_live);
    RC_ASSERT(pool_.num_held() == 0);
    RC_ASSERT(pool_.num_reserved() == 0);
  }

 private:
  const PageTable& Table(int rank) const { return pages_.sequence(rank).pages; }

  int& Slot(int rank, int position) {
    const PageId page = Table(rank).pages()[position / page_size_].id();
    return memory_[page.value * page_size_ + position % page_size_];
  }

  void Append(int num_tokens) {
    std::vector<PageCopy> copies;
    RC_ASSERT(Message(pages_.Append(num_tokens, &copies)) == "");
    RC_ASSERT(copies.size() < static_cast<size_t>(num_slots_));
    MakeCopies(copies);
    for (int rank = 0; rank < pages_.num_sequences(); ++rank) Write(rank);
  }

  void MakeCopies(const std::vector<PageCopy>& copies) {
    RC_ASSERT(Message(ValidateCopies(pool_, copies)) == "");
    num_copies_ += static_cast<int>(copies.size());
    for (auto copy = copies.rbegin(); copy != copies.rend(); ++copy) {
      const auto from = memory_.begin() + copy->from.value * page_size_;
      const auto to = memory_.begin() + copy->to.value * page_size_;
      std::fill_n(to, page_size_, -2);
      std::copy_n(from, copy->num_tokens, to);
    }
  }

  // What the table has and the model has not is the step's.
  void Write(int rank) {
    std::vector<PageId> ids = PagesOfRank(pages_, rank);
    const int first = static_cast<int>(sequences_[rank].size());
    const int num_tokens = Table(rank).num_tokens() - first;
    RC_ASSERT(num_tokens > 0);
    RC_ASSERT(Message(ValidateWrites(pool_, ids, first, num_tokens)) == "");
    for (int i = 0; i < num_tokens; ++i) {
      Slot(rank, first + i) = next_token_;
      sequences_[rank].push_back(next_token_++);
    }
  }

  void Follow(const std::vector<int>& parent_ranks) {
    std::vector<std::vector<int>> children;
    for (const int rank : parent_ranks) children.push_back(sequences_[rank]);
    sequences_ = std::move(children);
  }

  void Check() {
    max_held_ = std::max(max_held_, pool_.num_held());
    RC_ASSERT(Message(ValidatePages(pool_, pages_.Tables(), pages_.Tails())) ==
              "");
    RC_ASSERT(Message(ValidateReservation(pages_.Tables(), pages_.Tails(),
                                          pages_.num_reserved_pages())) == "");
    RC_ASSERT(pages_.num_sequences() == static_cast<int>(sequences_.size()));
    for (int rank = 0; rank < pages_.num_sequences(); ++rank) {
      const std::vector<int>& tokens = sequences_[rank];
      RC_ASSERT(Table(rank).num_tokens() == static_cast<int>(tokens.size()));
      for (size_t i = 0; i < tokens.size(); ++i) {
        RC_ASSERT(Slot(rank, static_cast<int>(i)) == tokens[i]);
      }
    }
  }

  const int num_slots_;
  const int page_size_;
  PagePool pool_;
  SequenceIdSource ids_;
  GroupPages pages_;
  std::vector<int> memory_;                  // [num_pages * page_size]
  std::vector<std::vector<int>> sequences_;  // by rank
  int next_token_ = 0;
  int num_copies_ = 0;
  int max_held_ = 0;
};

// Of the whole range, however small the case.
int AnyInRange(int first, int end) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(first, end));
}

// The pool has the worst case and not a page more.
RC_GTEST_PROP(GroupPagesPropertyTest, SequencesReadBackWithinTheWorstCase, ()) {
  const int page_size = *rc::gen::element(1, 2, 3, 4, 16);
  const int num_slots = AnyInRange(1, 6);
  const int max_new_tokens = AnyInRange(2, 20);
  const int num_prompt_tokens = AnyInRange(1, 40);
  GroupPagesWorld world(
      PagesRequest(num_prompt_tokens, num_slots, max_new_tokens), num_slots,
      page_size);
  for (int fed = 0; fed < num_prompt_tokens;) {
    const int chunk = AnyInRange(1, num_prompt_tokens - fed + 1);
    world.FeedPrompt(chunk);
    fed += chunk;
  }
  const int num_steps = AnyInRange(0, max_new_tokens);
  bool went_ahead = false;
  for (int step = 0; step < num_steps; ++step) {
    const int num_children = AnyInRange(1, num_slots + 1);
    std::vector<int> parents;
    for (int child = 0; child < num_children; ++child) {
      parents.push_back(AnyInRange(0, world.num_sequences()));
    }
    const bool ahead = AnyInRange(0, 2) == 1;
    went_ahead = went_ahead || ahead;
    ahead ? world.StepAhead(parents) : world.Step(parents);
  }
  RC_CLASSIFY(world.held_worst_case(), "held its worst case");
  RC_CLASSIFY(world.num_copies() > 0, "a tail was copied");
  RC_CLASSIFY(went_ahead, "went ahead");
  world.Release();
}

}  // namespace
}  // namespace espalier

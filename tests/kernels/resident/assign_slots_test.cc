#include "kernels/resident/assign_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <memory>
#include <set>
#include <vector>

namespace espalier {
namespace {

using ::testing::ElementsAre;

std::vector<int> Assign(const std::vector<int>& parent_slots, int num_slots) {
  std::vector<int> slots(parent_slots.size(), -7);
  const auto has_child = std::make_unique<bool[]>(num_slots);
  AssignSlots(parent_slots.data(), static_cast<int>(parent_slots.size()),
              num_slots, slots.data(), has_child.get());
  return slots;
}

TEST(AssignSlotsTest, TheFirstChildStaysAndATwinTakesTheCutSlot) {
  EXPECT_THAT(Assign({2, 2, 0}, 3), ElementsAre(2, 1, 0));
  EXPECT_THAT(Assign({}, 4), ElementsAre());
  EXPECT_THAT(Assign({1, 1, 1}, 4), ElementsAre(1, 0, 2));
}

struct Step {
  int num_slots = 1;
  std::vector<int> parent_slots;
};

Step AnyStep() {
  Step step;
  step.num_slots = *rc::gen::inRange(1, 40);
  const int num_beams = *rc::gen::inRange(0, step.num_slots + 1);
  step.parent_slots = *rc::gen::container<std::vector<int>>(
      num_beams, rc::gen::inRange(0, step.num_slots));
  return step;
}

RC_GTEST_PROP(AssignSlotsTest, BeamsHaveSlotsOfTheirOwn, ()) {
  const Step step = AnyStep();
  const std::vector<int> slots = Assign(step.parent_slots, step.num_slots);
  const std::set<int> distinct(slots.begin(), slots.end());
  RC_ASSERT(distinct.size() == slots.size());
  for (const int slot : slots) {
    RC_ASSERT(slot >= 0);
    RC_ASSERT(slot < step.num_slots);
  }
}

// A parent with c children needs c - 1 moves at least; one that survives keeps
// its slot, through its best child.
RC_GTEST_PROP(AssignSlotsTest, OnlyTwinsMove, ()) {
  const Step step = AnyStep();
  const std::vector<int> slots = Assign(step.parent_slots, step.num_slots);
  std::set<int> seen;
  for (size_t rank = 0; rank < slots.size(); ++rank) {
    const bool is_first = seen.insert(step.parent_slots[rank]).second;
    RC_ASSERT((slots[rank] == step.parent_slots[rank]) == is_first);
  }
}

RC_GTEST_PROP(AssignSlotsTest, NoMovesSourceIsAMovesTarget, ()) {
  const Step step = AnyStep();
  const std::vector<int> slots = Assign(step.parent_slots, step.num_slots);
  const std::set<int> parents(step.parent_slots.begin(),
                              step.parent_slots.end());
  for (size_t rank = 0; rank < slots.size(); ++rank) {
    if (slots[rank] == step.parent_slots[rank]) continue;
    RC_ASSERT(!parents.contains(slots[rank]));
  }
}

// Twins fill the free slots from the lowest up, in rank order.
RC_GTEST_PROP(AssignSlotsTest, TwinsTakeTheLowestFreeSlots, ()) {
  const Step step = AnyStep();
  const std::vector<int> slots = Assign(step.parent_slots, step.num_slots);
  const std::set<int> parents(step.parent_slots.begin(),
                              step.parent_slots.end());
  int next = 0;
  for (size_t rank = 0; rank < slots.size(); ++rank) {
    if (slots[rank] == step.parent_slots[rank]) continue;
    while (parents.contains(next)) ++next;
    RC_ASSERT(slots[rank] == next++);
  }
}

}  // namespace
}  // namespace espalier

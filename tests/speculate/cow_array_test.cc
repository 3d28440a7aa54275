#include "speculate/cow_array.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace espalier {
namespace {

TEST(CowArrayTest, AnAssignedArrayHasOneValueUntilItIsWrittenTo) {
  CowArray<int> array;
  array.Assign(1000, 7);
  EXPECT_EQ(array.size(), 1000u);
  array.Mutable(3) = 8;
  for (size_t i = 0; i < array.size(); ++i) EXPECT_EQ(array[i], i == 3 ? 8 : 7);
}

TEST(CowArrayTest, AnElementOfItsOwnCanBePushed) {
  CowArray<int> array;
  array.PushBack(1);
  const CowArray<int> shared = array;
  for (size_t i = 0; i < 2 * CowArray<int>::kChunkSize; ++i) {
    array.PushBack(array[i] + 0);
    array.PushBack(array[0]);
  }
  EXPECT_EQ(array[array.size() - 1], 1);
  EXPECT_EQ(shared.size(), 1u);
}

// Copies that share chunks, written to and grown in any order, are what
// vectors are.
RC_GTEST_PROP(CowArrayProperty, CopiesDoNotSeeOneAnothersWrites, ()) {
  std::vector<CowArray<int>> arrays(1);
  std::vector<std::vector<int>> twins(1);
  const int num_changes = *rc::gen::inRange(0, 400);
  for (int value = 1; value <= num_changes; ++value) {
    const auto which = *rc::gen::inRange<size_t>(0, arrays.size());
    CowArray<int>& array = arrays[which];
    std::vector<int>& twin = twins[which];
    const int change = *rc::gen::inRange(0, 20);
    if (change == 0 && arrays.size() < 5) {
      const CowArray<int> copy = array;
      const std::vector<int> twin_copy = twin;
      arrays.push_back(copy);
      twins.push_back(twin_copy);
    } else if (change < 10 || twin.empty()) {
      for (int i = 0; i < 40; ++i) {
        array.PushBack(value);
        twin.push_back(value);
      }
    } else {
      const auto i = *rc::gen::inRange<size_t>(0, twin.size());
      array.Mutable(i) = twin[i] = value;
    }
  }
  for (size_t k = 0; k < arrays.size(); ++k) {
    RC_ASSERT(arrays[k].size() == twins[k].size());
    for (size_t i = 0; i < twins[k].size(); ++i) {
      RC_ASSERT(arrays[k][i] == twins[k][i]);
    }
  }
}

}  // namespace
}  // namespace espalier

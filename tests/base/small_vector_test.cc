#include "base/small_vector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

bool IsInside(const SmallVector<int>& values) {
  const auto* const at = reinterpret_cast<const char*>(values.data());
  const auto* const begin = reinterpret_cast<const char*>(&values);
  return at >= begin && at < begin + sizeof values;
}

TEST(SmallVectorTest, TheFirstFourLieInItself) {
  SmallVector<int> values;
  for (int i = 0; i < 4; ++i) values.push_back(i);
  EXPECT_TRUE(IsInside(values));
  values.push_back(4);
  EXPECT_FALSE(IsInside(values));
  EXPECT_THAT(values, ElementsAre(0, 1, 2, 3, 4));
}

TEST(SmallVectorTest, ClearingKeepsTheMemory) {
  SmallVector<int> values(100);
  const int* const data = values.data();
  values.clear();
  EXPECT_THAT(values, IsEmpty());
  EXPECT_GE(values.capacity(), 100);
  values.resize(100, 7);
  EXPECT_EQ(values.data(), data);
  EXPECT_EQ(values.back(), 7);
}

TEST(SmallVectorTest, ValuesThatAreAddedMayBeItsOwn) {
  SmallVector<int> values = {1, 2, 3, 4};
  values.push_back(values.front());
  values.resize(9, values.back());
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 4, 1, 1, 1, 1, 1));
}

// Whatever is done to it is done to a std::vector as well.
class Twin {
 public:
  explicit Twin(int seed) : random_(seed) {}

  void Change() {
    const int count = Below(9);
    switch (Below(10)) {
      case 0:
        return Clear();
      case 1:
        return Resize(count);
      case 2:
        return Append(count);
      case 3:
        return Assign(count);
      case 4:
        return Copy();
      case 5:
        return Move();
      case 6:
        return PopBack();
      default:
        return PushBack();
    }
  }

  void ExpectEqual() const {
    ASSERT_THAT(values_, ElementsAreArray(twin_));
    ASSERT_EQ(values_.size(), twin_.size());
    ASSERT_GE(values_.capacity(), twin_.size());
    ASSERT_TRUE(values_ == SmallVector<PageId>(twin_.begin(), twin_.end()));
  }

 private:
  int Below(int end) { return static_cast<int>(random_() % end); }
  PageId Any() { return PageId{Below(1000)}; }
  std::vector<PageId> Some(int count) {
    std::vector<PageId> some;
    for (int i = 0; i < count; ++i) some.push_back(Any());
    return some;
  }

  void Clear() {
    values_.clear();
    twin_.clear();
  }
  void Resize(int count) {
    const PageId page = Any();
    values_.resize(count, page);
    twin_.resize(count, page);
  }
  void Append(int count) {
    const std::vector<PageId> some = Some(count);
    values_.append(some);
    twin_.insert(twin_.end(), some.begin(), some.end());
  }
  void Assign(int count) {
    const std::vector<PageId> some = Some(count);
    values_.assign(some.begin(), some.end());
    twin_ = some;
  }
  void Copy() {
    const SmallVector<PageId> copy = values_;
    values_ = SmallVector<PageId>(Below(9));
    values_ = copy;
  }
  void Move() {
    SmallVector<PageId> other(Below(9), Any());
    other = std::move(values_);
    EXPECT_THAT(values_, IsEmpty());  // NOLINT: what a move leaves
    values_.assign(Below(9), PageId{-1});
    values_ = SmallVector<PageId>(std::move(other));
  }
  void PopBack() {
    if (twin_.empty()) return;
    values_.pop_back();
    twin_.pop_back();
  }
  void PushBack() {
    const PageId page = Any();
    values_.push_back(page);
    twin_.push_back(page);
  }

  std::mt19937 random_;
  SmallVector<PageId> values_;
  std::vector<PageId> twin_;
};

TEST(SmallVectorTest, HoldsWhatAVectorWould) {
  for (int seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Twin twin(seed);
    for (int i = 0; i < 200; ++i) {
      twin.Change();
      ASSERT_NO_FATAL_FAILURE(twin.ExpectEqual());
    }
  }
}

}  // namespace
}  // namespace espalier

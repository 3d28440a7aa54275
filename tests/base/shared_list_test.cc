#include "base/shared_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Sum {
  int value = 0;
};

// Counts how often a sum is made.
class Summer {
 public:
  int SumOf(const SharedList<int>& list, int64_t factor = 1) {
    return list
        .Derived<Sum>({factor},
                      [&] {
                        ++num_made;
                        Sum sum;
                        for (const int item : list) {
                          sum.value += item * static_cast<int>(factor);
                        }
                        return sum;
                      })
        ->value;
  }

  int num_made = 0;
};

TEST(SharedListTest, ReadsLikeTheVectorItIsMadeOf) {
  const std::vector<std::string> items = {"a", "b"};
  const SharedList<std::string> list = items;
  EXPECT_EQ(list.size(), 2u);
  EXPECT_EQ(list.front(), "a");
  EXPECT_EQ(list.back(), list[1]);
  EXPECT_THAT(list, ElementsAre("a", "b"));
  EXPECT_EQ(list, (SharedList<std::string>{"a", "b"}));
  EXPECT_THAT(SharedList<std::string>(), IsEmpty());
  EXPECT_EQ(SharedList<std::string>(std::vector<std::string>()),
            SharedList<std::string>());
}

TEST(SharedListTest, CopiesShareElementsUntilOneIsChanged) {
  SharedList<int> list = {1, 2};
  const SharedList<int> same = list;
  EXPECT_EQ(list.data(), same.data());
  EXPECT_EQ(list.id(), same.id());
  list.push_back(3);
  EXPECT_THAT(list, ElementsAre(1, 2, 3));
  EXPECT_THAT(same, ElementsAre(1, 2));
  EXPECT_NE(list.id(), same.id());
  list.clear();
  EXPECT_THAT(list, IsEmpty());
  EXPECT_EQ(list.id(), 0);
}

TEST(SharedListTest, WhatIsDerivedIsMadeOnceForAllCopies) {
  Summer summer;
  SharedList<int> list = {1, 2};
  for (int i = 0; i < 256; ++i) {
    const SharedList<int> copy = list;
    EXPECT_EQ(summer.SumOf(copy), 3);
    EXPECT_EQ(summer.SumOf(copy, 10), 30);
  }
  EXPECT_EQ(summer.num_made, 2);
  // A change forgets it, of a list that is the only one, too.
  list.Edit().back() = 5;
  EXPECT_EQ(summer.SumOf(list), 6);
  EXPECT_EQ(summer.num_made, 3);
}

TEST(SharedListTest, AChangedCopyForgetsAndTheOthersRemember) {
  Summer summer;
  const SharedList<int> list = {1, 2};
  EXPECT_EQ(summer.SumOf(list), 3);
  SharedList<int> changed = list;
  changed.push_back(4);
  EXPECT_EQ(summer.SumOf(changed), 7);
  EXPECT_EQ(summer.SumOf(list), 3);
  EXPECT_EQ(summer.num_made, 2);
}

TEST(SharedListTest, KeepsTheLatestOfManyKeys) {
  Summer summer;
  const SharedList<int> list = {1};
  constexpr int kMany = 3 * DerivedValues::kMaxOfType;
  for (int key = 0; key < kMany; ++key) EXPECT_EQ(summer.SumOf(list, key), key);
  EXPECT_EQ(summer.SumOf(list, kMany - 1), kMany - 1);
  EXPECT_EQ(summer.num_made, kMany);
  EXPECT_EQ(summer.SumOf(list, 0), 0);
  EXPECT_EQ(summer.num_made, kMany + 1);
}

TEST(SharedListTest, ThreadsThatDeriveTogetherGetOneValue) {
  const SharedList<int> list = {1, 2, 3};
  std::vector<std::shared_ptr<const Sum>> sums(8);
  std::vector<std::thread> threads;
  for (auto& sum : sums) {
    threads.emplace_back([&sum, copy = list] {
      sum = copy.Derived<Sum>({}, [] { return Sum{6}; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& sum : sums) EXPECT_EQ(sum, sums[0]);
}

}  // namespace
}  // namespace espalier

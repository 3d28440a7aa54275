#include "batcher/scheduler/deadlines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <utility>
#include <vector>

namespace espalier {
namespace {

using ::testing::Optional;

Deadlines::Time At(int ms) {
  return Deadlines::Time() + std::chrono::milliseconds(ms);
}

TEST(DeadlinesTest, TheEarliestThatHasPassedIsFirst) {
  Deadlines deadlines;
  std::vector<Deadlines::Entry> entries;
  entries.push_back(deadlines.Add(At(30), RequestId{1}));
  entries.push_back(deadlines.Add(At(10), RequestId{2}));
  entries.push_back(deadlines.Add(At(10), RequestId{3}));
  EXPECT_THAT(deadlines.first(), Optional(At(10)));
  EXPECT_FALSE(deadlines.FirstExpired(At(9)).has_value());
  EXPECT_THAT(deadlines.FirstExpired(At(10)), Optional(RequestId{2}));
  entries[1].Remove();
  EXPECT_THAT(deadlines.FirstExpired(At(29)), Optional(RequestId{3}));
  entries[2].Remove();
  EXPECT_FALSE(deadlines.FirstExpired(At(29)).has_value());
  EXPECT_THAT(deadlines.FirstExpired(At(30)), Optional(RequestId{1}));
}

TEST(DeadlinesTest, AnEntryTakesItselfOutOnceWhoeverHoldsIt) {
  Deadlines deadlines;
  {
    Deadlines::Entry first = deadlines.Add(At(1), RequestId{1});
    Deadlines::Entry second = deadlines.Add(At(2), RequestId{2});
    const Deadlines::Entry moved = std::move(first);
    EXPECT_EQ(deadlines.size(), 2);
    first.Remove();
    EXPECT_EQ(deadlines.size(), 2);
    second = deadlines.Add(At(3), RequestId{3});
    EXPECT_EQ(deadlines.size(), 2);
    EXPECT_THAT(deadlines.first(), Optional(At(1)));
  }
  EXPECT_EQ(deadlines.size(), 0);
}

}  // namespace
}  // namespace espalier

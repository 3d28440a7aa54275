#include "serve/held_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "base/status.h"
#include "tests/status_matchers.h"

namespace espalier::serve {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

TEST(HeldMemoryTest, CallsThatHoldTooMuchTogetherAreRefusedUntilOneEnds) {
  HeldMemory memory(100);
  {
    ASSERT_OK_AND_ASSIGN(HeldMemory::Share first, memory.Take(60));
    ASSERT_OK_AND_ASSIGN(const HeldMemory::Share second, memory.Take(40));
    EXPECT_THAT(
        memory.Take(1),
        StatusIs(kExhausted,
                 HasSubstr("calls and catalogues of items hold some 100 "
                           "bytes")));
    EXPECT_FALSE(IsPermanent(memory.Take(1).status()));
    EXPECT_EQ(memory.num_bytes(), 100);
    first = HeldMemory::Share();
    EXPECT_EQ(memory.num_bytes(), 40);
    HeldMemory::Share moved = memory.Take(60).value();
    first = std::move(moved);
    EXPECT_EQ(memory.num_bytes(), 100);
    EXPECT_OK(memory.Take(0));
  }
  EXPECT_EQ(memory.num_bytes(), 0);
}

TEST(HeldMemoryTest, SharesMergeShrinkAndOutliveTheMemory) {
  HeldMemory::Share share;
  {
    HeldMemory memory(100);
    share.Merge(memory.Take(30).value());
    share.Merge(memory.Take(40).value());
    EXPECT_EQ(share.num_bytes(), 70);
    EXPECT_EQ(memory.num_bytes(), 70);
    share.ShrinkTo(80);
    EXPECT_EQ(memory.num_bytes(), 70);
    share.ShrinkTo(20);
    EXPECT_EQ(share.num_bytes(), 20);
    EXPECT_EQ(memory.num_bytes(), 20);
  }
  share = HeldMemory::Share();
}

TEST(HeldMemoryTest, ACallThatNeverFitsIsToldSo) {
  HeldMemory memory(100);
  const absl::Status status = memory.Take(101).status();
  EXPECT_THAT(status, StatusIs(kExhausted, HasSubstr("--max-held-bytes")));
  EXPECT_TRUE(IsPermanent(status));
  EXPECT_EQ(memory.num_bytes(), 0);
}

}  // namespace
}  // namespace espalier::serve

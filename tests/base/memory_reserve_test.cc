// A program of its own, because it replaces operator new.
#include "base/memory_reserve.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <thread>

#include "tests/replace_operator_new.h"

namespace {

thread_local int num_to_fail = 0;  // allocations, from the next one on
thread_local bool is_short = false;
std::atomic<bool> there_is_memory = true;

}  // namespace

void espalier::testing::OnAllocation() {
  if (is_short && !there_is_memory) throw std::bad_alloc();
  if (num_to_fail > 0) {
    --num_to_fail;
    throw std::bad_alloc();
  }
}

namespace espalier {
namespace {

void Allocate() { *std::make_unique<volatile int>() = 1; }

TEST(MemoryReserveTest, AnAllocationThatFailsIsTriedAgain) {
  const MemoryReserve reserve(100'000);
  num_to_fail = 1;
  EXPECT_NO_THROW(Allocate());
  EXPECT_EQ(num_to_fail, 0);
}

TEST(MemoryReserveTest, WhatOthersHaveTakenIsWaitedFor) {
  const MemoryReserve reserve(1);
  num_to_fail = 20;
  EXPECT_NO_THROW(Allocate());
  EXPECT_EQ(num_to_fail, 0);
  there_is_memory = false;
  std::jthread other([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    there_is_memory = true;
  });
  is_short = true;
  EXPECT_NO_THROW(Allocate());
  is_short = false;
}

TEST(MemoryReserveTest, OtherThreadsFailAtOnce) {
  const MemoryReserve reserve(1);
  std::jthread other([] {
    num_to_fail = 1;
    EXPECT_THROW(Allocate(), std::bad_alloc);
    EXPECT_EQ(num_to_fail, 0);
  });
}

TEST(MemoryReserveTest, SoDoesAThreadWithoutOneAnyMore) {
  { const MemoryReserve reserve(1); }
  num_to_fail = 1;
  EXPECT_THROW(Allocate(), std::bad_alloc);
}

TEST(MemoryReserveTest, ThrowsWhereThereIsNoMemoryForIt) {
  num_to_fail = 1;
  EXPECT_THROW(MemoryReserve(1), std::bad_alloc);
  num_to_fail = 1;
  EXPECT_THROW(Allocate(), std::bad_alloc);
}

TEST(MemoryReserveTest, ReservesNest) {
  const MemoryReserve outer(1);
  {
    const MemoryReserve inner(1);
    num_to_fail = 2;
    EXPECT_NO_THROW(Allocate());
  }
  num_to_fail = 2;
  EXPECT_NO_THROW(Allocate());
}

int num_calls = 0;

// A handler that was set before the first reserve is still called. Runs in a
// process of its own, which has had no reserve.
TEST(MemoryReserveDeathTest, LeavesOtherThreadsToTheHandlerBefore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    std::set_new_handler([] { ++num_calls; });
    { const MemoryReserve reserve(1); }
    num_to_fail = 3;
    Allocate();
    std::_Exit(num_calls == 3 ? 0 : 1);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace espalier

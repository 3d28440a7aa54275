#include "base/thread_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;

TEST(ThreadPoolTest, EveryIndexRunsExactlyOnceInEveryLoop) {
  for (int num_threads : {1, 2, 5}) {
    ASSERT_OK_AND_ASSIGN(const auto pool, ThreadPool::Create(num_threads));
    EXPECT_EQ(pool->num_threads(), num_threads);
    for (int loop = 0; loop < 500; ++loop) {
      const int count = loop % 17;
      std::vector<std::atomic<int>> calls(count);
      pool->ParallelFor(count, [&](int i) { ++calls[i]; });
      for (const auto& n : calls) ASSERT_EQ(n.load(), 1);
    }
  }
}

TEST(ThreadPoolTest, WorkOfALoopIsVisibleAfterIt) {
  ASSERT_OK_AND_ASSIGN(const auto pool, ThreadPool::Create(3));
  std::vector<int> values(1000, 0);
  for (int loop = 1; loop <= 100; ++loop) {
    pool->ParallelFor(1000, [&](int i) { values[i] += i; });
    ASSERT_EQ(values[999], 999 * loop);
  }
}

TEST(ThreadPoolTest, ANumberOfThreadsOutOfRangeIsNamed) {
  for (const int num_threads : {0, -1, 4097}) {
    EXPECT_THAT(ThreadPool::Create(num_threads),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "num_threads must be in [1, 4096], got " +
                             std::to_string(num_threads)));
  }
  EXPECT_EQ(ThreadPool().num_threads(), 1);
}

// Loops of several threads, and loops within loops, each with values of its
// own: none sees an index of another's, and each sees its work when it returns.
TEST(ThreadPoolTest, LoopsOfManyThreadsDoNotMixUp) {
  ASSERT_OK_AND_ASSIGN(const auto pool, ThreadPool::Create(3));
  const auto run_loops = [&](int num_loops) {
    for (int loop = 0; loop < num_loops; ++loop) {
      std::vector<int> values(loop % 23, 0);
      const int size = static_cast<int>(values.size());
      pool->ParallelFor(size, [&](int i) {
        std::vector<int> inner(i % 5, 0);
        pool->ParallelFor(i % 5, [&](int k) { inner[k] += 1; });
        for (const int n : inner) values[i] += n;
      });
      for (int i = 0; i < size; ++i) ASSERT_EQ(values[i], i % 5);
    }
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) callers.emplace_back(run_loops, 2000);
  for (std::thread& caller : callers) caller.join();
}

// Workers that the system does not schedule hold nothing up; later they help.
TEST(ThreadPoolTest, ALoopEndsThoughAWorkerNeverWakes) {
  std::latch wakes(1);
  std::atomic<int> num_started = 0;
  ASSERT_OK_AND_ASSIGN(const auto pool, ThreadPool::Create(4, [&] {
                         // The first one is there from the beginning.
                         if (num_started++ > 0) wakes.wait();
                       }));
  // Before the pool ends, also where an assertion fails.
  absl::Cleanup wake = [&] { wakes.count_down(); };
  for (int loop = 0; loop < 2000; ++loop) {
    std::vector<std::atomic<int>> calls(loop % 17);
    pool->ParallelFor(loop % 17, [&](int i) { ++calls[i]; });
    for (const auto& n : calls) ASSERT_EQ(n.load(), 1);
  }
  std::move(wake).Invoke();
  std::latch all(4);  // one index each
  pool->ParallelFor(4, [&](int) { all.arrive_and_wait(); });
}

// Loops of no work, which end before workers find them: none reads what such a
// loop has left behind, on its caller's stack or in the heap.
TEST(ThreadPoolTest, LateWorkersLeaveEndedLoopsAlone) {
  ASSERT_OK_AND_ASSIGN(const auto pool, ThreadPool::Create(4));
  const auto run_loops = [&](int num_loops) {
    for (int loop = 0; loop < num_loops; ++loop) {
      const int count = 2 + loop % 3;
      auto calls = std::make_unique<std::vector<std::atomic<int>>>(count);
      auto body = std::make_unique<std::function<void(int)>>(
          [calls = calls.get()](int i) { ++calls->at(i); });
      pool->ParallelFor(count, *body);
      body = nullptr;
      for (const auto& n : *calls) ASSERT_EQ(n.load(), 1);
      if (loop % 64 == 0) std::this_thread::yield();
    }
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) callers.emplace_back(run_loops, 20000);
  for (std::thread& caller : callers) caller.join();
}

// A short loop runs on its own thread while a long one occupies the workers.
TEST(ThreadPoolTest, NobodyWaitsForALoopThatIsNotTheirs) {
  ASSERT_OK_AND_ASSIGN(const auto pool, ThreadPool::Create(2));
  std::atomic<int> num_blocked = 0;
  std::atomic<bool> may_end = false;
  std::thread blocker([&] {
    pool->ParallelFor(2, [&](int) {
      ++num_blocked;
      may_end.wait(false);
    });
  });
  while (num_blocked < 2) std::this_thread::yield();
  int num_calls = 0;  // all on this thread
  pool->ParallelFor(100, [&](int) { ++num_calls; });
  EXPECT_EQ(num_calls, 100);
  may_end = true;
  may_end.notify_all();
  blocker.join();
}

}  // namespace
}  // namespace espalier

// The thread that launches steps: order, bounds, and its end.
#include "executor/cuda/cuda_launch_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace espalier {
namespace {

using ::testing::ElementsAre;

TEST(CudaLaunchThreadTest, TasksStartAndEndInOrderAndAllOfThem) {
  std::vector<int> started;
  std::vector<int> ended;
  int num_running = 0;
  int max_running = 0;
  {
    CudaLaunchThread thread(3, [&] { started.push_back(-1); });
    for (int i = 0; i < 200; ++i) {
      thread.Post([&, i]() -> CudaLaunchThread::Poll {
        started.push_back(i);
        max_running = std::max(max_running, ++num_running);
        return [&, i, polls = 0]() mutable {
          if (++polls < i % 7) return false;
          ended.push_back(i);
          --num_running;
          return true;
        };
      });
    }
  }  // joins
  ASSERT_EQ(started.size(), 201u);
  ASSERT_EQ(ended.size(), 200u);
  EXPECT_EQ(started[0], -1);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(started[i + 1], i);
    EXPECT_EQ(ended[i], i);
  }
  EXPECT_LE(max_running, 3);
}

TEST(CudaLaunchThreadTest, ATaskStartsWhileAnotherRuns) {
  std::atomic<bool> second_started = false;
  CudaLaunchThread thread(2, [] {});
  thread.Post([&] { return [&] { return second_started.load(); }; });
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  thread.Post([&] {
    second_started = true;
    return [] { return true; };
  });
  while (!second_started) std::this_thread::yield();
}

TEST(CudaLaunchThreadTest, AnIdleThreadWakesForANewTask) {
  std::atomic<int> num_ended = 0;
  CudaLaunchThread thread(2, [] {});
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    thread.Post([&] {
      return [&] {
        ++num_ended;
        return true;
      };
    });
    while (num_ended <= i) std::this_thread::yield();
  }
  EXPECT_EQ(num_ended, 3);
}

}  // namespace
}  // namespace espalier

#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace espalier {
namespace {

TEST(ThreadPoolTest, EveryIndexRunsExactlyOnceInEveryLoop) {
  for (int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (int loop = 0; loop < 500; ++loop) {
      const int count = loop % 17;
      std::vector<std::atomic<int>> calls(count);
      pool.ParallelFor(count, [&](int i) { ++calls[i]; });
      for (const auto& n : calls) ASSERT_EQ(n.load(), 1);
    }
  }
}

TEST(ThreadPoolTest, WorkOfALoopIsVisibleAfterIt) {
  ThreadPool pool(3);
  std::vector<int> values(1000, 0);
  for (int loop = 1; loop <= 100; ++loop) {
    pool.ParallelFor(1000, [&](int i) { values[i] += i; });
    ASSERT_EQ(values[999], 999 * loop);
  }
}

}  // namespace
}  // namespace espalier

// Overhead of a loop shared by a pool's threads, for small work: alone on the
// machine, and beside programs that keep all its cores busy.
//
//   thread_pool_benchmark
//
// Loop/T/W/B: T threads of the pool, W microseconds of work in each of 4
// indices (0: none), and B threads beside them that never sleep.
#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/thread_pool.h"

namespace espalier {
namespace {

constexpr int kNumIndices = 4;

void Work(std::chrono::microseconds time) {
  if (time.count() == 0) return;
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

class BusyThreads {
 public:
  explicit BusyThreads(int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this] {
        while (!stopping_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~BusyThreads() { stopping_ = true; }

 private:
  std::atomic<bool> stopping_{false};
  std::vector<std::jthread> threads_;
};

void Loop(benchmark::State& state) {
  const auto pool =
      ThreadPool::Create(static_cast<int>(state.range(0))).value();
  const std::chrono::microseconds work(state.range(1));
  const BusyThreads busy(static_cast<int>(state.range(2)));
  for (auto _ : state) {
    pool->ParallelFor(kNumIndices, [&](int) { Work(work); });
  }
}

BENCHMARK(Loop)
    ->ArgsProduct({{1, 2, 4}, {0, 5, 50}, {0, 2}})
    ->ArgNames({"threads", "us", "busy"})
    ->MinTime(0.5)
    ->UseRealTime();

}  // namespace
}  // namespace espalier

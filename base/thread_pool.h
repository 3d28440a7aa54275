// ThreadPool: the threads that share one loop at a time (data parallelism
// inside a step). Pools are passed in, never global. Workers wait for the next
// loop by spinning briefly and then sleeping, because the loops of one step
// follow each other within microseconds.
//
// Thread rule: one thread at a time calls ParallelFor, and takes part in the
// work; a pool of one thread may be used by many. How a loop is divided never
// influences a result: each index is computed alone.
//
//   ThreadPool pool(2);
//   pool.ParallelFor(num_tiles, [&](int tile) { ... });
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace espalier {

class ThreadPool {
 public:
  // `num_threads` counts the caller of ParallelFor: a pool of 1 starts none.
  // Where the system grants fewer threads, the pool goes on with those, and
  // num_threads() tells.
  // REQUIRES: num_threads >= 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(i) for every i in [0, count), on all threads, in any order, and
  // returns when all calls have returned. `body` must not throw.
  void ParallelFor(int count, const std::function<void(int)>& body);

 private:
  void WorkerLoop();
  void RunIndices();

  std::atomic<uint32_t> generation_{0};
  std::atomic<int> next_index_{0};
  std::atomic<int> num_busy_{0};
  std::atomic<bool> stopping_{false};
  int count_ = 0;
  const std::function<void(int)>* body_ = nullptr;
  std::vector<std::jthread> workers_;  // last: they use everything above
};

}  // namespace espalier

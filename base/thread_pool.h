// ThreadPool: the threads that share loops (data parallelism inside a step).
// Pools are passed in, never global, and shared by all who use them: two models
// of one process run on one pool. Workers wait for the next loop by spinning
// briefly and then sleeping, because the loops of one step follow each other
// within microseconds.
//
// Thread safety: any number of threads call ParallelFor at once, also from
// within a loop; each takes part in the work of its own. The workers help one
// loop at a time. A caller that finds them busy begins alone, and they help
// as soon as they are free: no caller waits for another's loop, so none can
// deadlock. Nor does it wait for a worker that has not joined its loop, because
// the system has not scheduled it yet: on a busy machine that takes
// milliseconds. How a loop is divided never influences a result: each index is
// computed alone.
//
//   ASSIGN_OR_RETURN(std::shared_ptr<ThreadPool> pool, ThreadPool::Create(2));
//   pool->ParallelFor(num_tiles, [&](int tile) { ... });
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace espalier {

class ThreadPool {
 public:
  // More than any machine has; far below what a system grants.
  static constexpr int kMaxThreads = 4096;

  // `num_threads` counts the caller of ParallelFor: a pool of 1 starts none.
  // Where the system grants fewer threads, the pool goes on with those, and
  // num_threads() tells. Each worker first calls `on_start`, if there is one,
  // which must not throw; loops run without workers that are not through with
  // it.
  // Errors: kInvalidArgument unless 1 <= num_threads <= kMaxThreads.
  static absl::StatusOr<std::shared_ptr<ThreadPool>> Create(
      int num_threads, const std::function<void()>& on_start = nullptr);

  // A pool of 1: every loop runs on its caller's thread.
  ThreadPool() = default;
  // REQUIRES: no loop runs.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(i) for every i in [0, count), on all threads that are free, in
  // any order, and returns when all calls have returned. `body` must not throw.
  void ParallelFor(int count, const std::function<void(int)>& body);

 private:
  // REQUIRES: the caller has set is_shared_.
  void ShareLoop(int begin, int end, const std::function<void(int)>& body);
  void WorkerLoop();
  // Takes part in the present loop, if it still can be joined.
  void HelpLoop();
  void RunIndices();

  // Whether the workers are taken. The thread that set it owns the three
  // members of the loop below, and clears it when its loop has ended.
  std::atomic<bool> is_shared_{false};
  // In a cache line of its own: all who run a loop write it at every index.
  alignas(64) std::atomic<int> next_index_{0};
  // Written while no worker is in the loop and none can join; read by those
  // that have joined.
  alignas(64) int end_ = 0;
  const std::function<void(int)>* body_ = nullptr;

  // Workers that have joined the loop, and kJoinable while others can. The
  // loop's owner takes that away when no index is left, and waits for 0.
  static constexpr uint32_t kJoinable = uint32_t{1} << 31;
  std::atomic<uint32_t> joined_{0};
  std::atomic<uint32_t> generation_{0};  // loops shared so far
  std::atomic<bool> stopping_{false};
  std::vector<std::jthread> workers_;  // last: they use everything above
};

}  // namespace espalier

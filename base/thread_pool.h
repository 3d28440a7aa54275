// ThreadPool: threads for parallel loops (data parallelism inside a step).
// Pools are passed in, never global, and can be shared: two models in one
// process run on one pool. Idle workers spin briefly before they sleep, because
// the loops of one step follow each other within microseconds.
//
// Thread safety: any number of threads may call ParallelFor at once, also from
// within a loop; each works on its own loop. The workers help one loop at a
// time. If they are busy, a caller starts its loop alone; if it finds them free
// between two indices, they join. No caller waits for another loop, so there
// are no deadlocks. Nor does a caller wait for a worker that has not joined its
// loop, because on a busy machine the system may need milliseconds to schedule
// that worker.
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
  // More than the cores of any machine, far below limits of operating systems.
  static constexpr int kMaxThreads = 4096;

  // `num_threads` includes the caller of ParallelFor: a pool of 1 starts none.
  // If the system refuses to start a thread, the pool has fewer: num_threads()
  // returns the actual number. Each worker first calls `on_start`, if set,
  // which must not throw; it joins no loop before that returns. Errors:
  // kInvalidArgument unless 1 <= num_threads <= kMaxThreads.
  static absl::StatusOr<std::shared_ptr<ThreadPool>> Create(
      int num_threads, const std::function<void()>& on_start = nullptr);

  // A pool of 1: every loop runs on its caller's thread.
  ThreadPool() = default;
  // REQUIRES: no loop runs.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(i) for i in [0, count) in any order on all free threads; returns
  // after all. REQUIRES: no call throws; each index is computed independently.
  void ParallelFor(int count, const std::function<void(int)>& body);

 private:
  // REQUIRES: the caller has set is_shared_.
  void ShareLoop(int begin, int end, const std::function<void(int)>& body);
  void WorkerLoop();
  // Joins the current loop, if it is still joinable.
  void HelpLoop();
  void RunIndices();

  // True while the workers have a loop. The thread that set it owns the three
  // members of the loop below, and clears it when its loop has ended.
  std::atomic<bool> is_shared_{false};
  // On its own cache line, because every thread of a loop writes it for every
  // index.
  alignas(64) std::atomic<int> next_index_{0};
  // Written only while no worker is in the loop and none can join; read by
  // workers that have joined.
  alignas(64) int end_ = 0;
  const std::function<void(int)>* body_ = nullptr;

  // Number of workers in the loop, plus kJoinable while others can join. The
  // owner removes kJoinable when no index is left, then waits for 0.
  static constexpr uint32_t kJoinable = uint32_t{1} << 31;
  std::atomic<uint32_t> joined_{0};
  std::atomic<uint32_t> generation_{0};  // loops shared so far
  std::atomic<bool> stopping_{false};
  std::vector<std::jthread> workers_;  // last: they use everything above
};

}  // namespace espalier

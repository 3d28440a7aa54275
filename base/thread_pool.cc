#include "base/thread_pool.h"

#include <chrono>
#include <exception>
#include <thread>

#include "base/status.h"

namespace espalier {
namespace {

// Loops of one step follow each other within tens of microseconds, steps
// within hundreds, and waking a sleeping thread can cost a hundred: so a
// waiting thread spins that long before it sleeps.
constexpr std::chrono::microseconds kSpinTime(300);
constexpr int kSpinsPerLook = 64;  // at the clock

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns when `value` differs from `old`.
template <typename T>
void AwaitChange(const std::atomic<T>& value, T old) {
  const auto changed = [&] {
    return value.load(std::memory_order_acquire) != old;
  };
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < kSpinsPerLook; ++i) {
      if (changed()) return;
      Pause();
    }
    std::this_thread::yield();  // to a thread that has work, if cores are short
  } while (std::chrono::steady_clock::now() - start < kSpinTime);
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

absl::StatusOr<std::shared_ptr<ThreadPool>> ThreadPool::Create(
    int num_threads, const std::function<void()>& on_start) {
  if (num_threads < 1 || num_threads > kMaxThreads) {
    return InvalidArgument("num_threads must be in [1, ", kMaxThreads,
                           "], got ", num_threads);
  }
  auto pool = std::make_shared<ThreadPool>();
  try {
    for (int i = 1; i < num_threads; ++i) {
      pool->workers_.emplace_back([pool = pool.get(), on_start] {
        if (on_start) on_start();
        pool->WorkerLoop();
      });
    }
  } catch (const std::exception&) {
    // The system has no more threads. An exception must not leave here: the
    // destructors of the threads that were started would wait forever.
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
}

void ThreadPool::ParallelFor(int count, const std::function<void(int)>& body) {
  for (int i = 0; i < count; ++i) {
    // The plain load comes first, since a failing exchange would invalidate the
    // flag in the caches of other waiting threads.
    if (!workers_.empty() && count - i > 1 &&
        !is_shared_.load(std::memory_order_relaxed) &&
        !is_shared_.exchange(true, std::memory_order_acquire)) {
      ShareLoop(i, count, body);
      is_shared_.store(false, std::memory_order_release);
      return;
    }
    body(i);
  }
}

void ThreadPool::ShareLoop(int begin, int end,
                           const std::function<void(int)>& body) {
  end_ = end;
  body_ = &body;
  next_index_.store(begin, std::memory_order_relaxed);
  // The release store makes the writes above visible to joining workers.
  joined_.store(kJoinable, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  RunIndices();
  uint32_t joined =
      joined_.fetch_sub(kJoinable, std::memory_order_acq_rel) - kJoinable;
  while (joined > 0) {
    AwaitChange(joined_, joined);
    joined = joined_.load(std::memory_order_acquire);
  }
}

void ThreadPool::RunIndices() {
  for (int i;
       (i = next_index_.fetch_add(1, std::memory_order_relaxed)) < end_;) {
    (*body_)(i);
  }
}

void ThreadPool::HelpLoop() {
  uint32_t joined = joined_.load(std::memory_order_relaxed);
  // Not by adding and taking back: a worker that the system stops in between
  // would hold the loop up.
  do {
    if ((joined & kJoinable) == 0) return;
  } while (!joined_.compare_exchange_weak(joined, joined + 1,
                                          std::memory_order_acquire,
                                          std::memory_order_relaxed));
  RunIndices();
  if (joined_.fetch_sub(1, std::memory_order_release) == 1) {
    joined_.notify_all();  // its owner waits
  }
}

void ThreadPool::WorkerLoop() {
  uint32_t seen = 0;
  while (true) {
    AwaitChange(generation_, seen);
    // The newest: those before it have ended without this worker.
    seen = generation_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    HelpLoop();
  }
}

}  // namespace espalier

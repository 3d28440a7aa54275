#include "executor/cuda/cuda_launch_thread.h"

#include <utility>

#include "base/memory.h"

namespace espalier {

CudaLaunchThread::CudaLaunchThread(int max_running, std::function<void()> start)
    : max_running_(max_running), thread_([this, start = std::move(start)] {
        start();
        Loop();
      }) {}

CudaLaunchThread::~CudaLaunchThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void CudaLaunchThread::Post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(task));
    has_posted_.store(true, std::memory_order_relaxed);
  }
  changed_.notify_one();
}

std::optional<CudaLaunchThread::Task> CudaLaunchThread::Next() {
  if (!running_.empty()) {
    if (running_.size() >= max_running_) return std::nullopt;
    if (!has_posted_.load(std::memory_order_relaxed)) return std::nullopt;
  }
  std::unique_lock lock(mutex_);
  if (running_.empty()) {
    changed_.wait(lock, [&] { return stopping_ || !posted_.empty(); });
  }
  if (posted_.empty()) return std::nullopt;
  Task task = std::move(posted_.front());
  posted_.pop_front();
  has_posted_.store(!posted_.empty(), std::memory_order_relaxed);
  return task;
}

// Launches come before polls, so that the device does not run out of work.
void CudaLaunchThread::Loop() {
  for (;;) {
    if (const std::optional<Task> task = Next()) {
      Poll poll = (*task)();
      UntilThereIsMemory([&] { running_.push_back(std::move(poll)); });
    } else if (running_.empty()) {
      return;  // stopping, and all is done
    } else if (running_.front()()) {
      running_.pop_front();
    } else {
      std::this_thread::yield();  // to the threads that prepare the next task
    }
  }
}

}  // namespace espalier

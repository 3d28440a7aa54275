#include "espalier/callback_thread.h"

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/memory.h"

namespace espalier {

struct CallbackThread::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::list<Work> posted ABSL_GUARDED_BY(mutex);
  int64_t num_posted ABSL_GUARDED_BY(mutex) = 0;
  int64_t num_called ABSL_GUARDED_BY(mutex) = 0;
  bool is_ending ABSL_GUARDED_BY(mutex) = false;
};

CallbackThread::CallbackThread()
    : queue_(std::make_shared<Queue>()),
      thread_([queue = queue_] { Run(*queue); }) {}

CallbackThread::~CallbackThread() {
  {
    const std::lock_guard<std::mutex> lock(queue_->mutex);
    queue_->is_ending = true;
  }
  queue_->changed.notify_all();
  if (IsThisThread()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void CallbackThread::Post(Work work) {
  // The callback may destroy this before notify_all.
  const std::shared_ptr<Queue> queue = queue_;
  // Retries the allocation without the lock: freeing memory may need the lock.
  std::list<Work> one;
  UntilThereIsMemory([&] { one.push_back(std::move(work)); });
  {
    const std::lock_guard<std::mutex> lock(queue->mutex);
    queue->posted.splice(queue->posted.end(), one);
    ++queue->num_posted;
  }
  queue->changed.notify_all();
}

void CallbackThread::Drain() {
  if (IsThisThread()) return;
  std::unique_lock<std::mutex> lock(queue_->mutex);
  const int64_t num_before = queue_->num_posted;
  queue_->changed.wait(lock, [&] { return queue_->num_called >= num_before; });
}

void CallbackThread::Run(Queue& queue) {
  std::unique_lock<std::mutex> lock(queue.mutex);
  while (true) {
    queue.changed.wait(
        lock, [&] { return queue.is_ending || !queue.posted.empty(); });
    if (queue.posted.empty()) return;
    {
      std::list<Work> one;
      one.splice(one.end(), queue.posted, queue.posted.begin());
      lock.unlock();
      try {
        std::move(one.front())();
      } catch (...) {
      }
    }
    lock.lock();
    ++queue.num_called;
    queue.changed.notify_all();
  }
}

bool CallbackThread::IsThisThread() const {
  return thread_.get_id() == std::this_thread::get_id();
}

}  // namespace espalier

// CudaLaunchThread: one thread that launches tasks and polls running ones, in
// order. It busy-waits while a task runs, because waking a thread takes as long
// as a short step, and sleeps when it is idle.
//
//   CudaLaunchThread thread(3, [=] { cudaSetDevice(ordinal); });
//   thread.Post([&]() -> CudaLaunchThread::Poll {
//     Launch();                    // on the thread
//     return [&] {                 // called again and again, until true
//       if (!IsDone()) return false;
//       Report();
//       return true;
//     };
//   });
//
// Thread safety: Post from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"

namespace espalier {

class CudaLaunchThread {
 public:
  // Returns true once the launched work has ended and was reported.
  using Poll = std::function<bool()>;
  using Task = std::function<Poll()>;

  // Runs `start` first. At most `max_running` tasks run at a time.
  CudaLaunchThread(int max_running, std::function<void()> start);
  // Finishes all posted tasks.
  ~CudaLaunchThread();
  CudaLaunchThread(const CudaLaunchThread&) = delete;
  CudaLaunchThread& operator=(const CudaLaunchThread&) = delete;

  // Launches `task` after all earlier tasks, and ends it after them too.
  void Post(Task task);

 private:
  void Loop();
  // Returns the next task to launch, if any; waits for one if nothing runs.
  std::optional<Task> Next();

  // Constant after construction.
  const size_t max_running_;

  // Used on the thread only.
  std::deque<Poll> running_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> posted_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> has_posted_ = false;

  std::thread thread_;
};

}  // namespace espalier

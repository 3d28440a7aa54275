// CudaLaunchThread: one thread that launches what is given to it and looks
// after what runs, in order. While something runs it never sleeps, because
// waking a thread takes as long as a short step; with nothing to do it waits.
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
  // Whether what was launched has ended, and been reported.
  using Poll = std::function<bool()>;
  using Task = std::function<Poll()>;

  // Runs `start` first. At most `max_running` tasks run at a time.
  CudaLaunchThread(int max_running, std::function<void()> start);
  // Finishes the tasks that were posted.
  ~CudaLaunchThread();
  CudaLaunchThread(const CudaLaunchThread&) = delete;
  CudaLaunchThread& operator=(const CudaLaunchThread&) = delete;

  // Launches `task` after those before it; they end in that order too.
  void Post(Task task);

 private:
  void Loop();
  // The next task to launch, if there is one; waits if nothing runs.
  std::optional<Task> Next();

  // Constant after construction.
  const size_t max_running_;

  // Touched on the thread.
  std::deque<Poll> running_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> posted_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> has_posted_ = false;

  std::thread thread_;
};

}  // namespace espalier

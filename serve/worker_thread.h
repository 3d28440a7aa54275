// WorkerThread: does what takes a while, such as drawing a trace or tokenizing
// a long text, on a thread that no connection waits for, or on several.
//
//   WorkerThread drawing("draw traces");
//   RETURN_IF_ERROR(drawing.Start());
//   absl::StatusOr<TraceAnswer> answer =
//       co_await drawing.Run<TraceAnswer>(draw);
//
// Runs as many at a time as it has threads, first come, first served. Work
// whose client goes while it waits is destroyed. Work may have an owner, as
// long work does: then it begins when no owner with less that runs waits, and
// one of several threads is left to others.
//
// Thread safety: Run from any executor's threads; Start before them; Stop from
// any thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace espalier::serve {

class WorkerThread {
 public:
  // Work that waits, beside what is being done.
  static constexpr int kMaxWaiting = 16;

  // `purpose` is for errors: "cannot " and it.
  explicit WorkerThread(std::string purpose, int max_waiting = kMaxWaiting)
      : purpose_(std::move(purpose)), max_waiting_(max_waiting) {}
  ~WorkerThread() { Stop(); }
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  // Once.
  // Errors: kUnavailable if there is no thread to be had.
  absl::Status Start(int num_threads = 1);
  // Waits for what is being done, if there is anything; what waits, and all
  // from now on, fails. Again, and from several threads, it waits as well.
  void Stop();

  // Destroys what is large, some `num_bytes`, on its thread, if it has one.
  // Where kBytesToReturn have been destroyed, free memory is returned to the
  // system. Waits for nothing.
  void Destroy(std::shared_ptr<const void> large, int64_t num_bytes) noexcept;
  static constexpr int64_t kBytesToReturn = int64_t{16} << 20;

  template <typename T>
  using WorkFor = std::function<absl::StatusOr<T>()>;

  // Returns what `work` returns. It owns what it reads, or that outlives this:
  // it may still run when the caller has been cancelled. Errors:
  // kResourceExhausted if max_waiting wait, kUnavailable once it stops or if
  // memory runs out, kInternal if `work` throws anything else; kCancelled if
  // the caller is cancelled, at once.
  template <typename T>
  boost::asio::awaitable<absl::StatusOr<T>> Run(WorkFor<T> work,
                                                std::string owner = {}) {
    const auto result = std::make_shared<absl::StatusOr<T>>();
    Work store = [result, work = std::move(work)] {
      *result = work();
      return absl::OkStatus();
    };
    const absl::Status done = co_await Do(std::move(store), std::move(owner));
    if (!done.ok()) co_return done;
    co_return *std::move(result);
  }

  // Runs `work` on the thread if `is_much`; otherwise on the caller's.
  template <typename T>
  boost::asio::awaitable<absl::StatusOr<T>> RunIf(bool is_much,
                                                  WorkFor<T> work) {
    if (!is_much) co_return work();
    co_return co_await Run<T>(std::move(work));
  }

 private:
  struct Job;
  using Work = std::function<absl::Status()>;

  boost::asio::awaitable<absl::Status> Do(Work work, std::string owner);
  absl::Status Add(const std::shared_ptr<Job>& job);
  // Removes an unwanted job from those that wait, if it is one of them.
  void Drop(const std::shared_ptr<Job>& job);
  // Returns how many jobs of the owner run; 0 if it is empty.
  int NumRunning(const std::string& owner) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the job whose turn it is, which runs then; null if there is none
  // that may begin.
  std::shared_ptr<Job> TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends a job that ran; another of its owner may begin.
  void EndRun(const Job* job);
  void DoAll();
  absl::Status Try(const Work& work) const;
  // Throws std::bad_alloc.
  static void HandOver(const std::shared_ptr<Job>& job);

  const std::string purpose_;
  const int max_waiting_;
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<std::shared_ptr<Job>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const void>> to_destroy_ ABSL_GUARDED_BY(mutex_);
  int64_t num_bytes_to_return_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  int num_threads_ ABSL_GUARDED_BY(mutex_) = 0;
  // Jobs with an owner that run. Has room for one of each thread.
  std::vector<const Job*> running_ ABSL_GUARDED_BY(mutex_);
  std::mutex join_mutex_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace espalier::serve

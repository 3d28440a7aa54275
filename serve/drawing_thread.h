// DrawingThread: draws traces, which may take a while, on a thread that no
// other call waits for.
//
//   RETURN_IF_ERROR(drawing.Start());
//   absl::StatusOr<TraceAnswer> answer = co_await drawing.Run(draw);
//
// One at a time, first come, first served. A drawing whose client has gone is
// not begun.
//
// Thread safety: Run from any executor's threads; Start before them; Stop from
// any thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "serve/trace_answer.h"

namespace espalier::serve {

class DrawingThread {
 public:
  // Drawings that wait, beside the one that is drawn.
  static constexpr int kMaxWaiting = 16;

  DrawingThread() = default;
  ~DrawingThread() { Stop(); }
  DrawingThread(const DrawingThread&) = delete;
  DrawingThread& operator=(const DrawingThread&) = delete;

  // Once. Errors: kUnavailable if there is no thread to be had.
  absl::Status Start();
  // Waits for the drawing that is drawn, if there is one; those that wait, and
  // all from now on, fail. Again, and from several threads, it waits as well.
  void Stop();

  using Draw = std::function<absl::StatusOr<TraceAnswer>()>;
  // What `draw` returns. Errors: kResourceExhausted if kMaxWaiting wait,
  // kUnavailable once it stops or if memory runs out, kInternal if `draw`
  // throws anything else; kCancelled if the caller is cancelled, at once.
  boost::asio::awaitable<absl::StatusOr<TraceAnswer>> Run(Draw draw);

 private:
  struct Job;

  absl::Status Add(const std::shared_ptr<Job>& job);
  void DrawAll();
  // False if there is no memory for it.
  static bool TryHandOver(const std::shared_ptr<Job>& job);

  std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<std::shared_ptr<Job>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::mutex join_mutex_;
  std::thread thread_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace espalier::serve

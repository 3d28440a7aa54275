// StepWatchdog: what an engine with EngineOptions::step_timeout has beside its
// strand. It measures how long the oldest step in flight has been the oldest,
// and reports a step whose answer does not come in time: a device that hangs, a
// model that waits for ever.
//
//   begins to be the oldest        answered               the next
//   Begin() ---------------------- End() ... Begin() ---------------------> t
//           |<- at most timeout ->|                 |<- timeout ->| on_late(2)
//
// It has a thread of its own, which sleeps until a step could be late, and so
// costs a step a lock and a look at the clock. The report goes to the strand
// after the answers that are there already: a strand that is busy makes no
// step late, however long an answer waits for it.
//
// StepStops and UnansweredSteps are what an engine needs to go on, or to end,
// without the answer.
//
// Thread safety: as noted; all of one engine.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace espalier {

class StepWatchdog {
 public:
  // Called on the thread, once a step at most; must only hand it over.
  using OnLate = std::function<void(int64_t step)>;

  // Throws std::system_error where there is no thread to be had.
  // REQUIRES: 0 < timeout < infinity.
  StepWatchdog(absl::Duration timeout, OnLate on_late);
  // Not from within on_late.
  ~StepWatchdog();
  StepWatchdog(const StepWatchdog&) = delete;
  StepWatchdog& operator=(const StepWatchdog&) = delete;

  absl::Duration timeout() const { return timeout_; }

  // A step is the oldest in flight from now on; or none is.
  void Begin();
  void End();
  // Whether on_late's `step` is still the oldest.
  bool IsOldest(int64_t step);

 private:
  using Clock = std::chrono::steady_clock;

  void Watch();

  const absl::Duration timeout_;
  const OnLate on_late_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Of the oldest step; unset if there is none, or it is late.
  std::optional<Clock::time_point> deadline_ ABSL_GUARDED_BY(mutex_);
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;          // the oldest, or the last
  bool is_watched_ ABSL_GUARDED_BY(mutex_) = false;   // step_ is in flight
  bool is_sleeping_ ABSL_GUARDED_BY(mutex_) = false;  // until a step begins
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// The stop tokens of steps (StepPlan::stop). Any thread.
class StepStops {
 public:
  std::stop_token token();
  // Steps that have a token are given up; later ones run. Throws
  // std::bad_alloc, and has done nothing then.
  void StopPresent();
  // So are all that follow.
  void StopAll();

 private:
  std::mutex mutex_;
  std::stop_source source_ ABSL_GUARDED_BY(mutex_);
  bool all_stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

// Counts the steps that an executor has and has not answered; shared by an
// engine and the callbacks of its steps. Any thread.
class UnansweredSteps {
 public:
  void Add();
  void Remove();
  // Whether there are none within `timeout`.
  bool AwaitNone(absl::Duration timeout);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Keeps what a step that hangs may use as long as the process lives.
void KeepForever(std::shared_ptr<const void> used);

}  // namespace espalier

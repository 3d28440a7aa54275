// StepWatchdog: detects hanging steps for an engine with
// EngineOptions::step_timeout. It measures the time for which the oldest step
// in flight has been the oldest, and reports a step without a result in time: a
// hanging device, or a model that waits for ever.
//
//   begins to be the oldest        answered               the next
//   Begin() ---------------------- End() ... Begin() ---------------------> t
//           |<- at most timeout ->|                 |<- timeout ->| on_late(2)
//
// Its thread sleeps until a step could be late, so a step costs one lock and
// one read of the clock. The report is posted to the strand behind results that
// have arrived: a busy strand makes no step late, however long a result waits
// for it.
//
// StepStops and UnansweredSteps let an engine continue or end without the
// result.
//
// Thread safety: as noted; all belong to one engine.
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
  // Called on the watchdog's thread, at most once per step; must only post the
  // report.
  using OnLate = std::function<void(int64_t step)>;

  // Throws std::system_error if no thread can be created.
  // REQUIRES: 0 < timeout < infinity.
  StepWatchdog(absl::Duration timeout, OnLate on_late);
  // Must not be called within on_late.
  ~StepWatchdog();
  StepWatchdog(const StepWatchdog&) = delete;
  StepWatchdog& operator=(const StepWatchdog&) = delete;

  absl::Duration timeout() const { return timeout_; }

  // Begin: a step is the oldest in flight from now on. End: no step is in
  // flight.
  void Begin();
  void End();
  // True if on_late's `step` is still the oldest.
  bool IsOldest(int64_t step);

 private:
  using Clock = std::chrono::steady_clock;

  void Watch();

  const absl::Duration timeout_;
  const OnLate on_late_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Deadline of the oldest step; unset if there is none, or it is late.
  std::optional<Clock::time_point> deadline_ ABSL_GUARDED_BY(mutex_);
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;          // the oldest, or the last
  bool is_watched_ ABSL_GUARDED_BY(mutex_) = false;   // step_ is in flight
  bool is_sleeping_ ABSL_GUARDED_BY(mutex_) = false;  // until a step begins
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Stop tokens of steps (StepPlan::stop). Any thread.
class StepStops {
 public:
  std::stop_token token();
  // Stops the steps that have a token; later steps run. If it throws
  // std::bad_alloc, nothing has changed.
  void StopPresent();
  // Stops these and all later steps.
  void StopAll();

 private:
  std::mutex mutex_;
  std::stop_source source_ ABSL_GUARDED_BY(mutex_);
  bool all_stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

// Counts the steps without a result; shared by an engine and the callbacks of
// its steps. Any thread.
class UnansweredSteps {
 public:
  void Add();
  void Remove();
  // Waits until the count is 0. Returns false if it is not within `timeout`.
  bool AwaitNone(absl::Duration timeout);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Leaks `used`, because a hanging step may use it as long as the process lives.
void KeepForever(std::shared_ptr<const void> used);

}  // namespace espalier

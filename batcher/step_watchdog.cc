#include "batcher/step_watchdog.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "base/fault_injection.h"
#include "base/memory.h"

namespace espalier {
namespace {

// Upper bound that no clock overflows at.
constexpr absl::Duration kLongest = absl::Hours(24 * 365 * 100);

std::chrono::nanoseconds ForClock(absl::Duration timeout) {
  return absl::ToChronoNanoseconds(
      std::clamp(timeout, absl::ZeroDuration(), kLongest));
}

}  // namespace

StepWatchdog::StepWatchdog(absl::Duration timeout, OnLate on_late)
    : timeout_(timeout), on_late_(std::move(on_late)) {
  if (FaultInjected(FaultPoint::kStartThread)) {
    throw std::system_error(EAGAIN, std::generic_category());
  }
  thread_ = std::thread([this] { Watch(); });
}

StepWatchdog::~StepWatchdog() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void StepWatchdog::Begin() {
  bool wakes = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    deadline_ = Clock::now() + ForClock(timeout_);
    ++step_;
    is_watched_ = true;
    // Otherwise the thread wakes by itself, no later than at the last step's
    // deadline.
    wakes = std::exchange(is_sleeping_, false);
  }
  if (wakes) changed_.notify_one();
}

void StepWatchdog::End() {
  const std::lock_guard<std::mutex> lock(mutex_);
  deadline_.reset();
  is_watched_ = false;
}

bool StepWatchdog::IsOldest(int64_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return is_watched_ && step_ == step;
}

void StepWatchdog::Watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!is_stopping_) {
    if (!deadline_.has_value()) {
      is_sleeping_ = true;
      changed_.wait(lock);
      is_sleeping_ = false;
      continue;
    }
    const Clock::time_point deadline = *deadline_;
    if (Clock::now() < deadline) {
      changed_.wait_until(lock, deadline);
      continue;
    }
    deadline_.reset();
    const int64_t step = step_;
    lock.unlock();
    on_late_(step);
    lock.lock();
  }
}

std::stop_token StepStops::token() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return source_.get_token();
}

void StepStops::StopPresent() {
  std::stop_source present(std::nostopstate);
  {
    std::stop_source next;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (all_stopped_) return;
    present = std::exchange(source_, std::move(next));
  }
  present.request_stop();  // runs stop callbacks, outside the lock
}

void StepStops::StopAll() {
  std::stop_source present(std::nostopstate);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    all_stopped_ = true;
    present = source_;
  }
  present.request_stop();
}

void UnansweredSteps::Add() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++count_;
}

void UnansweredSteps::Remove() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--count_ == 0) changed_.notify_all();
}

bool UnansweredSteps::AwaitNone(absl::Duration timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_until(
      lock, std::chrono::steady_clock::now() + ForClock(timeout),
      [this] { return count_ == 0; });
}

void KeepForever(std::shared_ptr<const void> used) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<const void>>();
  const std::lock_guard<std::mutex> lock(mutex);
  UntilThereIsMemory([&] { kept.push_back(std::move(used)); });
}

}  // namespace espalier

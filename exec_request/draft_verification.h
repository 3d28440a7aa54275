// DraftVerification: when a step says of the drafts of one run of a draft model
// (DraftSampler::Start) what became of them, for the run after it, before the
// host knows it.
//
//   executor's stream   step N: verify ─> VerifiedDraft of each ─> event
//   sampler's stream                             wait for the event ─> run N+1
//
// The host only has to know that the event is there to be waited for: Wait
// returns when the step was enqueued, which is long before it has run.
//
// Thread safety: any thread may call anything.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "absl/base/thread_annotations.h"

namespace espalier {

class DraftVerification {
 public:
  // The step is enqueued, and `event`, a cudaEvent_t, after what it says of
  // all drafts; null: that is there already. The first of Set and Fail counts.
  void Set(void* event) { Decide(event); }
  // There is no such step: nothing is ever said of the drafts.
  void Fail() { Decide(std::nullopt); }
  // Returns what was set once that is known; nothing if it failed.
  std::optional<void*> Wait();
  // For other drafts. REQUIRES: nobody waits.
  void Reset();

 private:
  void Decide(std::optional<void*> event);

  std::mutex mutex_;
  std::condition_variable decided_;
  bool is_decided_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<void*> event_ ABSL_GUARDED_BY(mutex_);
};

inline std::optional<void*> DraftVerification::Wait() {
  std::unique_lock lock(mutex_);
  decided_.wait(lock, [this] { return is_decided_; });
  return event_;
}

inline void DraftVerification::Reset() {
  const std::lock_guard lock(mutex_);
  is_decided_ = false;
}

inline void DraftVerification::Decide(std::optional<void*> event) {
  const std::lock_guard lock(mutex_);
  if (is_decided_) return;
  is_decided_ = true;
  event_ = event;
  decided_.notify_all();
}

}  // namespace espalier

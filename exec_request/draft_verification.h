// DraftVerification: signals that a step writes the verification results of one
// run of a draft model (DraftSampler::Start). The next run waits for them on
// the device, before the host knows them.
//
//   executor's stream   step N: verify ─> VerifiedDraft of each ─> event
//   sampler's stream                             wait for the event ─> run N+1
//
// The host only waits until the event is recorded: Wait() returns when the step
// is enqueued, long before it has run.
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
  // Announces that the step is enqueued. `event`, a cudaEvent_t, follows its
  // write of all verification results; null: they are written already. Only the
  // first call of Set or Fail counts.
  void Set(void* event) { Decide(event); }
  // Announces that there is no such step: the results will never be written.
  void Fail() { Decide(std::nullopt); }
  // Waits for Set or Fail. Returns the event, or nothing after Fail.
  std::optional<void*> Wait();
  // Resets it for other drafts. REQUIRES: no thread waits.
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

// QueueLimits: how many requests of an engine may be open, and how many prompt
// tokens of these may wait. A request takes its place on the thread that
// submits it, before anything else is held for it, so that concurrent callers,
// of whatever front, never exceed a limit together.
//
// Owners share the places: one may hold at most kShare times as many as are
// free (the dynamic threshold of Choudhury and Hahne, 1998). So one that is
// alone gets all but a ninth, and whatever it does another finds places.
//
//   ASSIGN_OR_RETURN(auto place, limits->Take(num_prompt_tokens));
//   ...
//   place->LeaveQueue();  // it starts: its prompt waits no more
//   place->GiveBack();    // it is about to be answered
//
// Thread safety: all of it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "batcher/engine_options.h"

namespace espalier {

class QueueLimits : public std::enable_shared_from_this<QueueLimits> {
 public:
  // The place of one request; gives itself back when it is gone.
  class Place {
   public:
    Place(std::shared_ptr<QueueLimits> limits, int64_t num_tokens,
          std::string owner, bool is_background);
    ~Place() { GiveBack(); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    // Each does nothing from its second time on.
    void LeaveQueue();
    void GiveBack();

   private:
    friend class QueueLimits;

    const std::shared_ptr<QueueLimits> limits_;
    const std::string owner_;  // empty: none
    const bool is_background_;
    // Guarded by the limits' mutex.
    int64_t num_tokens_;  // that wait
    bool waits_ = true;
    bool is_taken_ = true;
  };

  explicit QueueLimits(const EngineOptions& options);

  static constexpr int64_t kShare = 8;
  // Places of `num_places` that an owner who is alone may hold.
  static constexpr int64_t MaxOfOwner(int64_t num_places) {
    return (kShare * num_places + kShare) / (kShare + 1);
  }

  // Without an owner the request takes any place that is free. Throws
  // std::bad_alloc, and has taken nothing then.
  // `is_background`: nothing that runs is in its way.
  // Errors: kResourceExhausted naming the limit, its value, and what is there.
  absl::StatusOr<std::shared_ptr<Place>> Take(int64_t num_prompt_tokens,
                                              const std::string& owner = "",
                                              bool is_background = false);

  int64_t num_open() const;
  int64_t num_waiting() const;  // of these, those that have not started yet
  int64_t num_foreground_waiting() const;  // of these, all but background ones
  int64_t num_waiting_tokens() const;

 private:
  void LeaveQueue(Place* place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Check(int64_t num_tokens) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckShare(const std::string& owner) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int max_running_;
  const std::optional<int> max_waiting_;  // unset: no limit
  const int64_t max_waiting_tokens_;      // 0: no limit

  mutable std::mutex mutex_;
  int64_t num_open_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_background_waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_waiting_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  // Places of each owner that has any.
  std::unordered_map<std::string, int64_t> owned_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace espalier

// QueueLimits: limits of an engine's open requests and of their waiting prompt
// tokens. A request takes its place on the submitting thread, before it holds
// any other resource, so concurrent callers never exceed a limit together.
//
// Owners share the places: an owner may hold at most kShare times as many as
// are free (the dynamic threshold of Choudhury and Hahne, 1998). So a lone
// owner leaves a ninth of them, rounded down, to others; of fewer than nine
// places it may take all.
//
//   ASSIGN_OR_RETURN(auto place, limits->Take(num_prompt_tokens));
//   ...
//   place->LeaveQueue();  // it starts: its prompt no longer waits
//   place->GiveBack();    // it is about to end
//
// Thread safety: thread-safe.
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
  // The place of one request; the destructor gives it back.
  class Place {
   public:
    Place(std::shared_ptr<QueueLimits> limits, int64_t num_tokens,
          std::string owner, bool is_background);
    ~Place() { GiveBack(); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    // Later calls of each have no effect.
    void LeaveQueue();
    void GiveBack();

   private:
    friend class QueueLimits;

    const std::shared_ptr<QueueLimits> limits_;
    const std::string owner_;  // empty: no owner
    const bool is_background_;
    // Guarded by the limits' mutex.
    int64_t num_tokens_;  // waiting
    bool waits_ = true;
    bool is_taken_ = true;
  };

  explicit QueueLimits(const EngineOptions& options);

  static constexpr int64_t kShare = 8;
  // Returns the number of `num_places` that a lone owner may hold.
  static constexpr int64_t MaxOfOwner(int64_t num_places) {
    return (kShare * num_places + kShare) / (kShare + 1);
  }

  // Takes a place. Without an owner any free place is available.
  // `is_background`: has kBackgroundPriority or more, so that
  // num_foreground_waiting() excludes it. If it throws std::bad_alloc, nothing
  // was taken.
  // Errors: kResourceExhausted naming the limit, its value, and the present
  // count.
  absl::StatusOr<std::shared_ptr<Place>> Take(int64_t num_prompt_tokens,
                                              const std::string& owner = "",
                                              bool is_background = false);

  int64_t num_open() const;
  int64_t num_waiting() const;             // not started yet
  int64_t num_foreground_waiting() const;  // without background ones
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
  // Number of places of each owner with any.
  std::unordered_map<std::string, int64_t> owned_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace espalier

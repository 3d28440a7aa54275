#include "batcher/queue_limits.h"

#include <utility>

#include "base/field_error.h"
#include "base/status.h"

namespace espalier {

QueueLimits::Place::Place(std::shared_ptr<QueueLimits> limits,
                          int64_t num_tokens, std::string owner,
                          bool is_background)
    : limits_(std::move(limits)),
      owner_(std::move(owner)),
      is_background_(is_background),
      num_tokens_(num_tokens) {}

void QueueLimits::Place::LeaveQueue() {
  const std::lock_guard<std::mutex> lock(limits_->mutex_);
  limits_->LeaveQueue(this);
}

void QueueLimits::Place::GiveBack() {
  const std::lock_guard<std::mutex> lock(limits_->mutex_);
  limits_->LeaveQueue(this);
  if (!std::exchange(is_taken_, false)) return;
  --limits_->num_open_;
  if (owner_.empty()) return;
  const auto owned = limits_->owned_.find(owner_);
  if (--owned->second == 0) limits_->owned_.erase(owned);
}

QueueLimits::QueueLimits(const EngineOptions& options)
    : max_running_(options.scheduler.max_running),
      max_waiting_(options.max_waiting),
      max_waiting_tokens_(options.max_waiting_tokens) {}

void QueueLimits::LeaveQueue(Place* place) {
  num_waiting_tokens_ -= std::exchange(place->num_tokens_, 0);
  if (!std::exchange(place->waits_, false)) return;
  --num_waiting_;
  if (place->is_background_) --num_background_waiting_;
}

absl::Status QueueLimits::Check(int64_t num_tokens) const {
  if (max_waiting_.has_value() &&
      num_open_ >= int64_t{max_running_} + *max_waiting_) {
    return MakeFieldError(absl::StatusCode::kResourceExhausted,
                          "too many requests are open: ", num_open_,
                          ", of which `max_waiting`, ", *max_waiting_,
                          ", wait until one of `max_running`, ", max_running_,
                          ", ends; try again later, or raise `max_waiting`");
  }
  if (max_waiting_tokens_ == 0) return absl::OkStatus();
  if (num_tokens > max_waiting_tokens_) {
    return MarkPermanent(MakeFieldError(
        absl::StatusCode::kResourceExhausted, "`the prompt` has ", num_tokens,
        " tokens, and `max_waiting_tokens` lets at most ",
        Limit(max_waiting_tokens_), " wait; raise it, or shorten the prompt"));
  }
  if (num_tokens > max_waiting_tokens_ - num_waiting_tokens_) {
    return MakeFieldError(absl::StatusCode::kResourceExhausted,
                          "too many prompt tokens wait: ", num_waiting_tokens_,
                          ", and ", num_tokens,
                          " more would be above `max_waiting_tokens`, ",
                          max_waiting_tokens_,
                          "; try again later, or raise `max_waiting_tokens`");
  }
  return absl::OkStatus();
}

absl::Status QueueLimits::CheckShare(const std::string& owner) const {
  if (owner.empty() || !max_waiting_.has_value()) return absl::OkStatus();
  const int64_t num_places = int64_t{max_running_} + *max_waiting_;
  const auto owned = owned_.find(owner);
  const int64_t num_owned = owned == owned_.end() ? 0 : owned->second;
  if (num_owned < kShare * (num_places - num_open_)) return absl::OkStatus();
  return MakeFieldError(
      absl::StatusCode::kResourceExhausted,
      "too many requests of this caller are open: ", num_owned, " of ",
      num_open_, " in all, where ", num_places,
      " may be (`max_running` and `max_waiting`) and some are kept for others; "
      "try again later");
}

absl::StatusOr<std::shared_ptr<QueueLimits::Place>> QueueLimits::Take(
    int64_t num_prompt_tokens, const std::string& owner, bool is_background) {
  const std::lock_guard<std::mutex> lock(mutex_);
  absl::Status status = Check(num_prompt_tokens);
  if (status.ok()) status = CheckShare(owner);
  if (!status.ok()) return status;
  int64_t* const owned = owner.empty() ? nullptr : &owned_[owner];
  auto place = std::make_shared<Place>(shared_from_this(), num_prompt_tokens,
                                       owner, is_background);
  if (owned != nullptr) ++*owned;
  ++num_open_;
  ++num_waiting_;
  if (is_background) ++num_background_waiting_;
  num_waiting_tokens_ += num_prompt_tokens;
  return place;
}

int64_t QueueLimits::num_open() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_open_;
}

int64_t QueueLimits::num_waiting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_waiting_;
}

int64_t QueueLimits::num_foreground_waiting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_waiting_ - num_background_waiting_;
}

int64_t QueueLimits::num_waiting_tokens() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_waiting_tokens_;
}

}  // namespace espalier

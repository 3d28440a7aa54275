#include "batcher/scheduler/deadlines.h"

#include "base/check.h"
#include "base/field_error.h"

namespace espalier {

absl::Status PassedDeadline(int64_t deadline_ms, std::string_view waited_for) {
  return MakeFieldError(absl::StatusCode::kDeadlineExceeded, "`deadline_ms`, ",
                        deadline_ms,
                        ", has passed before the first token: ", waited_for);
}

Deadlines::~Deadlines() {
  CHECK(times_.empty()) << times_.size() << " deadlines outlive their owner";
}

Deadlines::Entry Deadlines::Add(Time when, RequestId id) {
  const auto [at, is_new] = times_.emplace(when, id);
  CHECK(is_new) << "request " << id << " has a deadline";
  return Entry(this, at);
}

std::optional<Deadlines::Time> Deadlines::first() const {
  if (times_.empty()) return std::nullopt;
  return times_.begin()->first;
}

std::optional<RequestId> Deadlines::FirstExpired(Time now) const {
  if (times_.empty() || times_.begin()->first > now) return std::nullopt;
  return times_.begin()->second;
}

}  // namespace espalier

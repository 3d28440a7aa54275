// RequestTraces: the traces (trace/trace.h) of the requests that ended last,
// kept in memory so that a client can inspect a search after its answer. Both
// their number and their bytes are bounded.
//
//   auto traces = std::make_shared<RequestTraces>(TraceLimits{16});
//   auto generator = Generator::Load(directory, {.trace = traces});
//   ...
//   auto found = traces->Find("cmpl-7");  // after its requests have ended
//
// A request is known by its caller_id, or without one by its number. Where
// several have the same, as the prompts of one call, Find returns all it keeps.
//
// A request whose trace exceeds max_request_bytes loses it, and Find reports
// that. If all traces together exceed max_bytes, those of ended requests are
// forgotten first, then those of running ones dropped, the oldest first.
//
// Thread safety: On is called by one thread at a time, the engine's strand; all
// else by any thread at any time. A lock is held while an event is appended, or
// pointers are copied; a trace that Find has returned is not changed any more.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "trace/trace.h"

namespace espalier::serve {

struct TraceLimits {
  // Requests that have ended; in [0, kMaxTraceRequests]. 0: keeps no trace.
  int max_requests = 0;
  int64_t max_bytes = int64_t{64} << 20;          // for all traces; >= 0
  int64_t max_request_bytes = int64_t{16} << 20;  // per request; >= 0
};
// Limits the time of Find, which compares the ids of all traces.
inline constexpr int kMaxTraceRequests = 4096;

// Errors: kInvalidArgument naming the limit and its value.
absl::Status CheckTraceLimits(const TraceLimits& limits);

// The events of one request, in their order.
struct RequestTrace {
  std::string id = {};
  std::deque<TraceEvent> events = {};
  int64_t num_bytes = 0;    // memory, approximately
  bool is_dropped = false;  // it exceeded a limit, and has no events
};

// Returns the bytes of memory that an event takes, about.
int64_t NumBytes(const TraceEvent& event);

class RequestTraces : public TraceSink {
 public:
  using Found = std::vector<std::shared_ptr<const RequestTrace>>;

  // REQUIRES: CheckTraceLimits(limits).ok().
  explicit RequestTraces(const TraceLimits& limits);
  RequestTraces(const RequestTraces&) = delete;
  RequestTraces& operator=(const RequestTraces&) = delete;

  // If an allocation fails, the request loses its trace.
  void On(const TraceEvent& event) override;

  // Returns the traces of the ended requests of this id that were not dropped,
  // in the order in which they ended; at least one.
  // Errors: kNotFound if there is none, saying whether the request still runs,
  // or how many traces are kept; permanent kResourceExhausted if all were
  // dropped. They name the request by `shown_id`.
  absl::StatusOr<Found> Find(std::string_view id,
                             std::string_view shown_id) const;
  absl::StatusOr<Found> Find(std::string_view id) const { return Find(id, id); }

  const TraceLimits& limits() const { return limits_; }
  int num_ended() const;      // requests whose traces are kept, even if dropped
  int64_t num_bytes() const;  // kept traces and running requests

 private:
  using Open = std::map<RequestId, std::shared_ptr<RequestTrace>>;

  void Begin(const TraceRequest& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Append(RequestTrace* trace, const TraceEvent& event)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(Open::iterator open) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(RequestTrace* trace) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepLimits() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TraceLimits limits_;
  mutable std::mutex mutex_;
  Open open_ ABSL_GUARDED_BY(mutex_);  // requests that run; ids ascend
  std::deque<std::shared_ptr<const RequestTrace>> ended_
      ABSL_GUARDED_BY(mutex_);  // oldest first
  int64_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace espalier::serve

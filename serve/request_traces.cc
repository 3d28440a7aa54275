#include "serve/request_traces.h"

#include <new>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/field_error.h"
#include "base/json.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "base/wording.h"

namespace espalier::serve {
namespace {

template <typename T>
int64_t ElementBytes(const std::vector<T>& elements) {
  return std::ssize(elements) * static_cast<int64_t>(sizeof(T));
}

int64_t TextBytes(const std::string& text) { return std::ssize(text); }

// Bytes that an event has on the heap.
int64_t HeapBytes(const TraceRequest& event) {
  return (event.caller_id ? TextBytes(*event.caller_id) : 0) +
         TextBytes(event.prompt) + std::ssize(WriteJson(event.params)) +
         ElementBytes(event.prompt_tokens);
}

int64_t HeapBytes(const TraceCandidate& event) {
  return TextBytes(event.text) + TextBytes(event.why);
}

int64_t HeapBytes(const TracePages& event) {
  int64_t bytes = ElementBytes(event.shared) + ElementBytes(event.slots) +
                  ElementBytes(event.drafts) + ElementBytes(event.cached) +
                  ElementBytes(event.copied);
  for (const TraceSlotPages& slot : event.slots) {
    bytes += ElementBytes(slot.pages);
  }
  for (const std::vector<PageId>& draft : event.drafts) {
    bytes += ElementBytes(draft);
  }
  return bytes;
}

int64_t HeapBytes(const TraceEnd& event) {
  int64_t bytes = ElementBytes(event.hypotheses);
  for (const TraceHypothesis& hypothesis : event.hypotheses) {
    bytes += TextBytes(hypothesis.finish_reason);
  }
  if (event.error) bytes += std::ssize(event.error->message());
  return bytes;
}

int64_t HeapBytes(const TracePreempted& event) {
  return ElementBytes(event.nodes);
}

int64_t HeapBytes(const TraceResumed&) { return 0; }

int64_t HeapBytes(const TraceLegal& event) { return ElementBytes(event.rows); }

// Bytes of a trace without its events.
int64_t OwnBytes(const RequestTrace& trace) {
  return static_cast<int64_t>(sizeof(trace)) + TextBytes(trace.id);
}

}  // namespace

absl::Status CheckTraceLimits(const TraceLimits& limits) {
  if (limits.max_requests < 0 || limits.max_requests > kMaxTraceRequests) {
    return InvalidArgument("max_requests must be in [0, ", kMaxTraceRequests,
                           "], got ", limits.max_requests);
  }
  const std::pair<const char*, int64_t> bytes[] = {
      {"max_bytes", limits.max_bytes},
      {"max_request_bytes", limits.max_request_bytes}};
  for (const auto& [name, value] : bytes) {
    if (value < 0) {
      return InvalidField(FieldName{name}, " must be at least 0", Got(value));
    }
  }
  return absl::OkStatus();
}

int64_t NumBytes(const TraceEvent& event) {
  return static_cast<int64_t>(sizeof(TraceEvent)) +
         std::visit([](const auto& e) { return HeapBytes(e); }, event);
}

RequestTraces::RequestTraces(const TraceLimits& limits) : limits_(limits) {
  CHECK(CheckTraceLimits(limits).ok()) << CheckTraceLimits(limits).ToString();
}

void RequestTraces::On(const TraceEvent& event) {
  if (limits_.max_requests == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  try {
    if (const auto* begin = std::get_if<TraceRequest>(&event)) Begin(*begin);
  } catch (const std::bad_alloc&) {
    return;
  }
  const auto open = open_.find(RequestOf(event));
  if (open == open_.end()) return;  // there was no memory for it
  try {
    Append(open->second.get(), event);
  } catch (const std::bad_alloc&) {
    Drop(open->second.get());
  }
  if (std::holds_alternative<TraceEnd>(event)) End(open);
  KeepLimits();
}

void RequestTraces::Begin(const TraceRequest& event) {
  auto trace = std::make_shared<RequestTrace>();
  trace->id = event.caller_id ? *event.caller_id : Concat(event.request.value);
  trace->num_bytes = OwnBytes(*trace);
  const auto [open, is_new] = open_.emplace(event.request, trace);
  if (is_new) num_bytes_ += trace->num_bytes;
}

void RequestTraces::Append(RequestTrace* trace, const TraceEvent& event) {
  if (trace->is_dropped) return;
  const int64_t num_bytes = NumBytes(event);
  if (num_bytes > limits_.max_request_bytes - trace->num_bytes) {
    return Drop(trace);
  }
  trace->events.push_back(event);
  trace->num_bytes += num_bytes;
  num_bytes_ += num_bytes;
}

void RequestTraces::End(Open::iterator open) {
  try {
    ended_.push_back(open->second);
  } catch (const std::bad_alloc&) {
    num_bytes_ -= open->second->num_bytes;
  }
  open_.erase(open);
  if (std::ssize(ended_) > limits_.max_requests) ForgetOldest();
}

void RequestTraces::Drop(RequestTrace* trace) {
  num_bytes_ -= trace->num_bytes - OwnBytes(*trace);
  trace->num_bytes = OwnBytes(*trace);
  trace->events.clear();
  trace->is_dropped = true;
}

void RequestTraces::ForgetOldest() {
  num_bytes_ -= ended_.front()->num_bytes;
  ended_.pop_front();
}

void RequestTraces::KeepLimits() {
  while (num_bytes_ > limits_.max_bytes && !ended_.empty()) ForgetOldest();
  for (const auto& [id, trace] : open_) {
    if (num_bytes_ <= limits_.max_bytes) return;
    Drop(trace.get());
  }
}

absl::StatusOr<RequestTraces::Found> RequestTraces::Find(
    std::string_view id, std::string_view shown_id) const {
  Found found;
  bool is_dropped = false;
  bool runs = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& trace : ended_) {
      if (trace->id != id) continue;
      is_dropped |= trace->is_dropped;
      if (!trace->is_dropped) found.push_back(trace);
    }
    for (const auto& [request, trace] : open_) runs |= trace->id == id;
  }
  if (!found.empty()) return found;
  const std::string name = Concat("request ", BytesInQuotes(shown_id));
  if (is_dropped) {
    return MarkPermanent(ResourceExhausted(
        "the trace of ", name,
        " took too much memory, and was not kept: ", limits_.max_request_bytes,
        " bytes are for one, ", limits_.max_bytes, " for all"));
  }
  if (runs) {
    return NotFound(name, " runs, and its trace can be had when it has ended");
  }
  return NotFound("no trace of ", name, " among those of the last ",
                  Pluralize(limits_.max_requests, "request"),
                  " that ended, as far as they are kept; a request that ",
                  "generates nothing has none");
}

int RequestTraces::num_ended() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(ended_.size());
}

int64_t RequestTraces::num_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_bytes_;
}

}  // namespace espalier::serve

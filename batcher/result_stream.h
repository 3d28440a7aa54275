// ResultStream: the reader's end of a request that streams.
//
//   ASSIGN_OR_RETURN(ResultStream stream,
//                    co_await engine.Stream(request));
//   while (true) {
//     ASSIGN_OR_RETURN(const std::optional<StreamEvent> event,
//                      co_await stream.Next());
//     if (!event.has_value()) break;
//     Show(*event);
//   }
//
// (In a coroutine the two macros are written out.)
//
// The engine does not wait for a reader: batcher/event_queue.h describes the
// events of a slow reader and their cost. Destroying the stream ends the
// request at once, in any state, and releases its pages.
//
// Cancelling Next ends only the wait: the next Next returns the event. So Next
// can race a timer, if the caller also checks the result of Next when the timer
// wins: both may have finished, and asio's operator || drops the value of the
// second. On several threads a race requires a strand (engine.h). A reader that
// is cancelled for good ends the request by destroying the stream.
//
// Thread safety: one coroutine at a time, on any executor. The stream may
// outlive the engine and its context; then a request that is still running ends
// with kCancelled.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "request/stream_event.h"

namespace espalier {

struct EventBatch;  // batcher/event_queue.h

class ResultStream {
 public:
  // Access to the engine; both functions may be called on any thread.
  struct Source {
    std::function<void(int64_t num_received,
                       std::function<void(std::shared_ptr<EventBatch>)>)>
        read;
    std::function<void()> cancel;
  };

  explicit ResultStream(Source source);
  ~ResultStream();
  ResultStream(ResultStream&&) = default;
  ResultStream& operator=(ResultStream&&);

  // Returns the next event, as soon as there is one. The last is the Result
  // that Generate would have returned; nullopt follows it.
  // Errors: those of Generate, in place of the Result, after all earlier
  // events; nullopt follows. kCancelled ("cancelled by its caller") if the wait
  // was cancelled, kResourceExhausted if there is no memory to wait: no event
  // is lost then. kFailedPrecondition if another Next waits, or if cancelling
  // would be a race (engine.h).
  boost::asio::awaitable<absl::StatusOr<std::optional<StreamEvent>>> Next();

 private:
  struct State;
  class ReadingEnds;
  static boost::asio::awaitable<absl::StatusOr<std::optional<StreamEvent>>>
  NextOf(std::shared_ptr<State> state);
  // Waits for the next batch.
  static boost::asio::awaitable<absl::Status> Receive(
      std::shared_ptr<State> state);

  void EndRequest();

  std::shared_ptr<State> state_;  // null after a move; Next may outlive this
};

}  // namespace espalier

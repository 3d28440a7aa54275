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
// The engine does not wait for a reader: batcher/event_queue.h has what a slow
// reader gets, and what that costs. Destroying the stream ends the request
// at once, in whatever state it is, and its pages come back.
//
// Cancelling Next ends the wait and nothing else: what it waited for is the
// next Next's. So Next can race a timer, if the winner of the race looks at
// what Next returned, too: both may have finished, and asio's operator || drops
// the value of the second. On several threads a race takes a strand (engine.h).
// A reader that is cancelled for good ends the request by destroying the
// stream.
//
// Thread safety: one coroutine at a time; it may run on any executor. The
// stream may outlive the engine and its context; a request that still ran then
// ends with kCancelled.
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
  // How it reaches the engine; both may be called on any thread.
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

  // The next event, as soon as there is one. The last is the Result that
  // Generate would have given; nullopt after it.
  // Errors: those of Generate, in place of the Result, after all that came
  // before; nullopt after that, too. kCancelled ("cancelled by its caller") if
  // the wait was cancelled, kResourceExhausted if there is no memory to wait:
  // nothing is lost then. kFailedPrecondition if another Next waits, or where
  // cancelling would be a race (engine.h).
  boost::asio::awaitable<absl::StatusOr<std::optional<StreamEvent>>> Next();

 private:
  struct State;
  class ReadingEnds;
  static boost::asio::awaitable<absl::StatusOr<std::optional<StreamEvent>>>
  NextOf(std::shared_ptr<State> state);
  // The next batch.
  static boost::asio::awaitable<absl::Status> Receive(
      std::shared_ptr<State> state);

  void EndRequest();

  std::shared_ptr<State> state_;  // null after a move; Next may outlive this
};

}  // namespace espalier

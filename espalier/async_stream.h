// AsyncStream: the reader's end of a request of a generator that streams, for
// readers that must not block, such as a loop of events.
//
//   absl::StatusOr<AsyncStream> stream =
//       generator.StreamAsync(request, [&] { wake_the_loop(); });
//   if (!stream.ok()) return stream.status();
//   // In the loop, when it was woken:
//   for (const StreamEvent& event : stream->TakeEvents()) Show(event);
//   if (auto answer = stream->TakeResult()) Finish(*std::move(answer));
//
// `on_ready` is called when the first event comes that is not taken yet, and
// when the request has ended: on a thread of the generator, which all its
// requests share, or within StreamAsync if the generator has ended. It must not
// block, throw, or call the generator or the stream. Unread
// events are coalesced (docs/streams.md). No thread belongs to a stream.
//
// Thread safety: one user at a time, on any thread. The stream may outlive the
// generator; then its request has ended with kCancelled.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "espalier/generator.h"
#include "request/stream_event.h"

namespace espalier {

class AsyncStream {
 public:
  // Ends the request, if it runs. `on_ready` may still run during this call,
  // not after it.
  ~AsyncStream();
  AsyncStream(AsyncStream&&) = default;
  AsyncStream& operator=(AsyncStream&&);

  // The events since the last call, without the Result; empty if none came.
  std::vector<StreamEvent> TakeEvents();

  // Once: the answer of Generator::Generate, after the last event was taken.
  // Nullopt before, and after that.
  std::optional<absl::StatusOr<Generation>> TakeResult();

 private:
  friend class Generator;
  struct State;

  explicit AsyncStream(std::shared_ptr<State> state);
  // Errors: as Generator::Stream.
  static absl::StatusOr<AsyncStream> Open(
      const std::shared_ptr<GeneratorCore>& core, GenerationRequest from,
      std::function<void()> on_ready, const CallOptions& options,
      const StreamOptions& stream_options);

  std::shared_ptr<State> state_;  // null after a move
};

}  // namespace espalier

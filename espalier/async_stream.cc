#include "espalier/async_stream.h"

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <mutex>
#include <new>
#include <stop_token>
#include <utility>
#include <variant>

#include "base/status.h"
#include "batcher/engine.h"
#include "batcher/event_queue.h"
#include "espalier/error_parts.h"
#include "espalier/generator_call.h"
#include "espalier/open_request.h"
#include "espalier/run_prepared.h"

namespace espalier {
namespace asio = boost::asio;

struct AsyncStream::State {
  State(OpenRequest opened, std::function<void()> ready, bool keeps_parts)
      : open(std::move(opened)),
        on_ready(std::move(ready)),
        keeps_error_parts(keeps_parts) {}

  void Add(StreamEvent event) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (auto* const sample = std::get_if<SampleEvent>(&event)) {
      events.Extend(std::move(*sample));
    } else if (auto* const prefix = std::get_if<StablePrefixEvent>(&event)) {
      events.Extend(std::move(*prefix));
    } else if (auto* const beams = std::get_if<BeamsEvent>(&event)) {
      events.Replace(std::move(*beams));
    }
    if (!std::exchange(has_events, true)) Wake();
  }

  void End(absl::StatusOr<Result> ended) {
    const std::lock_guard<std::mutex> lock(mutex);
    { const GeneratorCore::Place ends = std::move(open.place); }
    result.emplace(std::move(ended));
    Wake();
  }

  void Wake() {
    if (on_ready != nullptr) on_ready();
  }

  std::mutex mutex;
  OpenRequest open;
  std::function<void()> on_ready;  // null: its reader is gone
  const bool keeps_error_parts;
  EventQueue events;
  bool has_events = false;
  int64_t num_batches = 0;                       // taken
  std::optional<absl::StatusOr<Result>> result;  // not taken yet
  std::stop_source stop;
  // Stops the request where the call's own token does.
  std::optional<std::stop_callback<std::function<void()>>> on_stop;
};

namespace {

template <typename State>
asio::awaitable<absl::StatusOr<Result>> ReadAll(Engine& engine,
                                                std::shared_ptr<State> state,
                                                StreamOptions options) {
  absl::StatusOr<ResultStream> stream = co_await StreamPrepared(
      engine, std::move(state->open.prepared.request), options);
  if (!stream.ok()) co_return stream.status();
  while (true) {
    absl::StatusOr<std::optional<StreamEvent>> event = co_await stream->Next();
    if (!event.ok()) co_return event.status();
    if (!event->has_value()) co_return Internal("the stream has no result");
    if (Result* const result = std::get_if<Result>(&**event)) {
      co_return std::move(*result);
    }
    state->Add(*std::move(*event));
  }
}

}  // namespace

AsyncStream::AsyncStream(std::shared_ptr<State> state)
    : state_(std::move(state)) {}

AsyncStream::~AsyncStream() {
  if (state_ == nullptr) return;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->on_ready = nullptr;
  }
  state_->stop.request_stop();
}

AsyncStream& AsyncStream::operator=(AsyncStream&& other) {
  if (this == &other) return *this;
  const AsyncStream ended(std::exchange(state_, std::move(other.state_)));
  return *this;
}

absl::StatusOr<AsyncStream> AsyncStream::Open(
    const std::shared_ptr<GeneratorCore>& core, GenerationRequest from,
    std::function<void()> on_ready, const CallOptions& options,
    const StreamOptions& stream_options) try {
  const GeneratorCore::Deadline deadline = DeadlineOf(options.timeout);
  ASSIGN_OR_RETURN(OpenRequest open, espalier::Open(core, std::move(from)));
  const auto state = std::make_shared<State>(
      std::move(open), std::move(on_ready), options.keeps_error_parts);
  AsyncStream stream(state);
  state->on_stop.emplace(options.stop,
                         [stop = &state->stop] { stop->request_stop(); });
  CallOptions call = options;
  call.stop = state->stop.get_token();
  Call::Make(core, call, deadline)
      ->Run<Result>(
          [core = core.get(), state, stream_options] {
            return ReadAll(core->engine(), state, stream_options);
          },
          [state](absl::StatusOr<Result> result) {
            state->End(std::move(result));
          });
  return stream;
} catch (const std::bad_alloc&) {
  return OutOfMemory();
}

std::vector<StreamEvent> AsyncStream::TakeEvents() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  std::vector<StreamEvent> taken;
  if (!state_->has_events) return taken;
  state_->events.Read(state_->num_batches,
                      [&](const std::shared_ptr<EventBatch>& batch) {
                        taken = std::move(batch->events);
                      });
  ++state_->num_batches;
  state_->has_events = false;
  return taken;
}

std::optional<absl::StatusOr<Generation>> AsyncStream::TakeResult() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  if (state_->has_events || !state_->result.has_value()) return std::nullopt;
  absl::StatusOr<Result> result = *std::move(state_->result);
  state_->result.reset();
  lock.unlock();  // texts are made here, which may take a while
  absl::StatusOr<Generation> answer =
      state_->open.prepared.finish(std::move(result));
  if (answer.ok() || state_->keeps_error_parts) return answer;
  return WithoutErrorParts(answer.status());
}

}  // namespace espalier

#include "batcher/result_stream.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <iterator>
#include <utility>

#include "batcher/answer_channel.h"

namespace espalier {

namespace asio = boost::asio;

// Touched by the reader.
struct ResultStream::State {
  explicit State(Source from) : source(std::move(from)) {}

  // Once. What nobody has read is dropped.
  void EndRequest() {
    ended = true;
    events.clear();
    const Source last = std::exchange(source, {});
    if (last.cancel != nullptr) last.cancel();
  }

  void Take(EventBatch& batch) {
    ++num_received;
    std::ranges::move(batch.events, std::back_inserter(events));
    if (!batch.end.has_value()) return;
    ended = true;
    error = *std::move(batch.end);
    source = {};  // there is nothing to cancel any more
  }

  Source source;
  int64_t num_received = 0;        // batches
  std::deque<StreamEvent> events;  // taken over, and not given out yet
  bool ended = false;              // nothing follows `events` but the error
  absl::Status error;              // not given out yet
};

ResultStream::ResultStream(Source source)
    : state_(std::make_shared<State>(std::move(source))) {}

ResultStream::~ResultStream() { EndRequest(); }

ResultStream& ResultStream::operator=(ResultStream&& other) {
  if (this == &other) return *this;
  EndRequest();
  state_ = std::move(other.state_);
  return *this;
}

void ResultStream::EndRequest() {
  if (state_ != nullptr) state_->EndRequest();
}

asio::awaitable<absl::StatusOr<std::optional<StreamEvent>>>
ResultStream::Next() {
  return NextOf(state_);
}

asio::awaitable<absl::StatusOr<std::optional<StreamEvent>>>
ResultStream::NextOf(std::shared_ptr<State> state) {
  const asio::cancellation_state cancellation =
      co_await asio::this_coro::cancellation_state;
  if (cancellation.cancelled() != asio::cancellation_type::none) {
    co_return CancelledByCaller();  // and asked not to throw
  }
  if (state->events.empty() && !state->ended) {
    const auto executor = co_await asio::this_coro::executor;
    using Value = std::shared_ptr<EventBatch>;
    const auto answer = std::make_shared<AnswerChannel<Value>>(executor, 1);
    state->source.read(state->num_received, SendTo<Value>(answer));
    const auto [error, batch] =
        co_await answer->async_receive(asio::as_tuple(asio::use_awaitable));
    if (error) co_return CancelledByCaller();
    state->Take(*batch);
    // Who has cancelled since may not look at what comes back.
    const asio::cancellation_state since =
        co_await asio::this_coro::cancellation_state;
    if (since.cancelled() != asio::cancellation_type::none) {
      co_return CancelledByCaller();
    }
  }
  if (!state->events.empty()) {
    StreamEvent event = std::move(state->events.front());
    state->events.pop_front();
    co_return std::move(event);
  }
  if (!state->error.ok()) {
    co_return std::exchange(state->error, absl::OkStatus());
  }
  co_return std::nullopt;
}

}  // namespace espalier

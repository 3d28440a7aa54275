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
  void Cancel() {
    ended = true;
    if (source.cancel != nullptr) std::exchange(source.cancel, nullptr)();
  }

  void Take(EventBatch batch) {
    std::ranges::move(batch.events, std::back_inserter(events));
    if (!batch.end.has_value()) return;
    ended = true;
    error = *std::move(batch.end);
    source = {};  // there is nothing to cancel any more
  }

  Source source;
  std::deque<StreamEvent> events;  // taken over, and not given out yet
  bool ended = false;              // nothing follows `events` but the error
  absl::Status error;              // not given out yet
};

ResultStream::ResultStream(Source source)
    : state_(std::make_shared<State>(std::move(source))) {}

ResultStream::~ResultStream() { CancelUnlessEnded(); }

ResultStream& ResultStream::operator=(ResultStream&& other) {
  if (this == &other) return *this;
  CancelUnlessEnded();
  state_ = std::move(other.state_);
  return *this;
}

void ResultStream::CancelUnlessEnded() {
  if (state_ != nullptr) state_->Cancel();
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
    state->Cancel();
    co_return CancelledByCaller();  // and asked not to throw
  }
  if (state->events.empty() && !state->ended) {
    const auto executor = co_await asio::this_coro::executor;
    const auto answer =
        std::make_shared<AnswerChannel<EventBatch>>(executor, 1);
    CancelUnlessAnswered guard([state] { state->Cancel(); });
    state->source.read(SendTo<EventBatch>(answer));
    auto [error, batch] =
        co_await answer->async_receive(asio::as_tuple(asio::use_awaitable));
    if (error) co_return CancelledByCaller();
    guard.Answered();
    state->Take(std::move(batch));
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

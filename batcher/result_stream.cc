#include "batcher/result_stream.h"

#include <atomic>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/this_coro.hpp>
#include <new>
#include <utility>

#include "base/memory.h"
#include "base/status.h"
#include "batcher/answer.h"
#include "batcher/event_queue.h"

namespace espalier {

namespace asio = boost::asio;

// Accessed by the reader.
struct ResultStream::State {
  explicit State(Source from) : source(std::move(from)) {}

  // Called once. Drops unread events.
  void EndRequest() {
    ended = true;
    batch = nullptr;
    const Source last = std::exchange(source, {});
    if (last.cancel != nullptr) last.cancel();
  }

  void Take(std::shared_ptr<EventBatch> received) {
    ++num_received;
    batch = std::move(received);
    num_given_out = 0;
    if (!batch->end.has_value()) return;
    ended = true;
    error = *batch->end;
    source = {};  // nothing is left to cancel
  }

  bool has_event() const {
    return batch != nullptr && num_given_out < batch->events.size();
  }

  std::atomic<bool> is_read = false;  // by a Next
  Source source;
  int64_t num_received = 0;           // batches
  std::shared_ptr<EventBatch> batch;  // the last one, or null
  size_t num_given_out = 0;           // events of the batch
  // Only the error follows the batch's events.
  bool ended = false;
  absl::Status error;  // not given out yet
};

// Resets is_read, even if the Next is destroyed while it waits.
class ResultStream::ReadingEnds {
 public:
  explicit ReadingEnds(State* state) : state_(*state) {}
  ~ReadingEnds() { state_.is_read = false; }
  ReadingEnds(const ReadingEnds&) = delete;
  ReadingEnds& operator=(const ReadingEnds&) = delete;

 private:
  State& state_;
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
  if (state == nullptr) co_return FailedPrecondition("the stream was moved");
  if (state->is_read.exchange(true)) {
    co_return FailedPrecondition("another Next of the stream waits");
  }
  const ReadingEnds reading_ends(state.get());
  try {
    const absl::Status can_wait = co_await CheckCanWait();
    if (!can_wait.ok()) co_return can_wait;
    if (!state->has_event() && !state->ended) {
      const absl::Status received = co_await Receive(state);
      if (!received.ok()) co_return received;
    }
  } catch (const std::bad_alloc&) {
    co_return UntilThereIsMemory([] {
      return absl::ResourceExhaustedError(
          "not enough memory to wait for an event");
    });
  }
  if (state->has_event()) {
    co_return std::move(state->batch->events[state->num_given_out++]);
  }
  if (!state->error.ok()) {
    co_return std::exchange(state->error, absl::OkStatus());
  }
  co_return std::nullopt;
}

asio::awaitable<absl::Status> ResultStream::Receive(
    std::shared_ptr<State> state) {
  using Value = std::shared_ptr<EventBatch>;
  const auto answer = std::make_shared<Answer<Value>>();
  state->source.read(state->num_received, SendTo<Value>(answer, nullptr));
  std::optional<Value> batch = co_await Answer<Value>::Await(answer);
  if (!batch.has_value()) co_return CancelledByCaller();
  if (*batch == nullptr) {
    state->EndRequest();
    co_return ContextEnded();
  }
  state->Take(*std::move(batch));
  // The batch stays in `state` for the next call if the reader was cancelled.
  const asio::cancellation_state since =
      co_await asio::this_coro::cancellation_state;
  const bool is_cancelled = since.cancelled() != asio::cancellation_type::none;
  co_return is_cancelled ? CancelledByCaller() : absl::OkStatus();
}

}  // namespace espalier

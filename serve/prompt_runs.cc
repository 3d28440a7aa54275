#include "serve/prompt_runs.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/channel.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <exception>
#include <utility>

#include "absl/time/time.h"

namespace espalier::serve {

namespace asio = boost::asio;

namespace {

// A client hears something at least so often.
constexpr absl::Duration kPingPeriod = absl::Seconds(15);

std::optional<RunEvent> RunEventOf(
    int request, absl::StatusOr<std::optional<StreamEvent>> event) {
  if (!event.ok()) {
    return RunEvent{request, absl::StatusOr<Result>(event.status())};
  }
  // A stream ends with its result; there is nothing more to read.
  if (auto* result = std::get_if<Result>(&event->value())) {
    return RunEvent{request, absl::StatusOr<Result>(std::move(*result))};
  }
  return RunEvent{request, std::move(event->value())};
}

}  // namespace

// The coroutines have a plain pointer to it; what completes them keeps it.
struct PromptRuns::Shared {
  using Channel = asio::experimental::channel<void(boost::system::error_code,
                                                   std::optional<RunEvent>)>;

  explicit Shared(const asio::any_io_executor& executor)
      : channel(executor, /*max_buffer_size=*/1) {}

  Channel channel;
  std::deque<asio::cancellation_signal> signals;  // one per coroutine
  bool is_silent = true;                          // since the last query
};

PromptRuns::PromptRuns(const asio::any_io_executor& executor)
    : shared_(std::make_shared<Shared>(executor)) {}

PromptRuns::~PromptRuns() {
  shared_->channel.close();
  for (asio::cancellation_signal& signal : shared_->signals) {
    signal.emit(asio::cancellation_type::terminal);
  }
}

void PromptRuns::Start(int request, Engine& engine, Engine::Prepared prepared) {
  Spawn(shared_,
        AwaitResult(shared_.get(), request, &engine, std::move(prepared)));
}

void PromptRuns::Start(int first, std::vector<ResultStream> streams) {
  Spawn(shared_, ReadStreams(shared_.get(), first, std::move(streams)));
}

void PromptRuns::StartPings() { Spawn(shared_, SendPings(shared_.get())); }

asio::awaitable<std::optional<RunEvent>> PromptRuns::Next() {
  Shared& shared = *shared_;
  std::optional<RunEvent> event =
      co_await shared.channel.async_receive(asio::use_awaitable);
  shared.is_silent = false;
  co_return event;
}

void PromptRuns::Spawn(const std::shared_ptr<Shared>& shared,
                       asio::awaitable<void> run) {
  asio::co_spawn(
      shared->channel.get_executor(), std::move(run),
      asio::bind_cancellation_slot(shared->signals.emplace_back().slot(),
                                   [kept = shared](std::exception_ptr) {}));
}

std::function<void(absl::Status)> PromptRuns::Interrupter() {
  return [weak = std::weak_ptr<Shared>(shared_),
          executor = shared_->channel.get_executor()](absl::Status why) {
    asio::post(executor, [weak, why = std::move(why)] {
      const std::shared_ptr<Shared> shared = weak.lock();
      if (shared == nullptr) return;
      Spawn(shared, SendError(shared.get(), why));
    });
  };
}

asio::awaitable<void> PromptRuns::SendError(Shared* shared, absl::Status why) {
  std::optional<RunEvent> event =
      RunEvent{-1, absl::StatusOr<Result>(std::move(why))};
  co_await Send(shared, event);
}

asio::awaitable<void> PromptRuns::SendPings(Shared* shared) {
  asio::steady_timer timer(shared->channel.get_executor());
  while (true) {
    timer.expires_after(absl::ToChronoNanoseconds(kPingPeriod / 2));
    co_await timer.async_wait(asio::use_awaitable);
    if (std::exchange(shared->is_silent, true)) {
      std::optional<RunEvent> nothing;
      co_await Send(shared, nothing);
    }
  }
}

// `event` is a variable of the caller's: gcc 12 destroys temporaries of such an
// expression twice.
asio::awaitable<void> PromptRuns::Send(Shared* shared,
                                       std::optional<RunEvent>& event) {
  co_await shared->channel.async_send(boost::system::error_code(),
                                      std::move(event), asio::use_awaitable);
}

asio::awaitable<void> PromptRuns::ReadStreams(
    Shared* shared, int first, std::vector<ResultStream> streams) {
  int request = first;
  for (ResultStream& stream : streams) {
    for (bool is_over = false; !is_over;) {
      absl::StatusOr<std::optional<StreamEvent>> next = co_await stream.Next();
      const bool is_error = !next.ok();
      std::optional<RunEvent> event = RunEventOf(request, std::move(next));
      is_over = std::holds_alternative<absl::StatusOr<Result>>(event->what);
      co_await Send(shared, event);
      if (is_error) co_return;
    }
    ++request;
  }
}

asio::awaitable<void> PromptRuns::AwaitResult(Shared* shared, int request,
                                              Engine* engine,
                                              Engine::Prepared prepared) {
  absl::StatusOr<Result> result =
      co_await engine->Generate(std::move(prepared));
  std::optional<RunEvent> event = RunEvent{request, std::move(result)};
  co_await Send(shared, event);
}

}  // namespace espalier::serve

#include "serve/prompt_runs.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>
#include <deque>
#include <exception>
#include <new>
#include <utility>

#include "absl/time/time.h"
#include "base/status.h"

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

// Returns the error of an exception. Throws std::bad_alloc if it is one, or if
// memory runs out.
absl::Status StatusOf(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return Internal("an exception ended a request: ", error.what());
  } catch (...) {
    return Internal("an unknown exception ended a request");
  }
}

}  // namespace

// The coroutines have a plain pointer to it; what completes them keeps it.
//
// Events pass by one place, not by a channel of asio, which is in no valid
// state after an allocation that failed. `filled` and `emptied` never expire:
// cancelling wakes those that wait for them, and allocates nothing.
struct PromptRuns::Shared {
  explicit Shared(const asio::any_io_executor& executor)
      : filled(executor, asio::steady_timer::time_point::max()),
        emptied(executor, asio::steady_timer::time_point::max()),
        ping(executor) {}

  // From now on Next returns an error. Coroutines that wait here end.
  void Close() {
    is_closed = true;
    filled.cancel();
    emptied.cancel();
    ping.cancel();
  }

  std::optional<std::optional<RunEvent>> sent;  // and not received
  bool is_closed = false;
  std::optional<absl::Status> error;  // why; unset: an allocation failed
  asio::steady_timer filled;
  asio::steady_timer emptied;
  asio::steady_timer ping;
  std::deque<asio::cancellation_signal> signals;  // one per coroutine
  bool is_silent = true;                          // since the last query
};

// Completion handler of a coroutine. If an exception ended the coroutine, or if
// an allocation failed in the call of this handler, an event may be missing for
// which Next would wait for ever.
class PromptRuns::RunEnd {
 public:
  explicit RunEnd(std::shared_ptr<Shared> shared)
      : shared_(std::move(shared)) {}
  RunEnd(RunEnd&&) = default;
  ~RunEnd() {
    if (shared_ != nullptr) shared_->Close();
  }

  void operator()(std::exception_ptr error) {
    const std::shared_ptr<Shared> shared = std::move(shared_);
    if (error == nullptr) return;
    try {
      if (!shared->is_closed) shared->error = StatusOf(error);
    } catch (const std::bad_alloc&) {
    }
    shared->Close();
  }

 private:
  std::shared_ptr<Shared> shared_;  // null: already called, or moved from
};

PromptRuns::PromptRuns(const asio::any_io_executor& executor)
    : shared_(std::make_shared<Shared>(executor)) {}

PromptRuns::~PromptRuns() {
  shared_->Close();
  for (asio::cancellation_signal& signal : shared_->signals) {
    // A coroutine that is not cancelled, because asio found no memory to do it,
    // ends when its request does: it cannot send the event.
    try {
      signal.emit(asio::cancellation_type::terminal);
    } catch (const std::bad_alloc&) {
    }
  }
}

void PromptRuns::Start(int request, Engine& engine, Engine::Prepared prepared) {
  Spawn(shared_,
        AwaitResult(shared_.get(), request, &engine, std::move(prepared)));
}

void PromptRuns::Start(int first, std::vector<ResultStream> streams) {
  Spawn(shared_, ReadStreams(shared_.get(), first, std::move(streams)));
}

asio::awaitable<absl::Status> PromptRuns::Await(
    asio::awaitable<absl::Status> work) {
  const auto result = std::make_shared<absl::Status>();
  Spawn(shared_, Report(shared_.get(), std::move(work), result));
  const std::optional<RunEvent> failed = co_await Next();
  if (!failed) co_return *result;
  co_return std::get<absl::StatusOr<Result>>(failed->what).status();
}

void PromptRuns::StartPings() { Spawn(shared_, SendPings(shared_.get())); }

asio::awaitable<std::optional<RunEvent>> PromptRuns::Next() {
  Shared& shared = *shared_;
  while (!shared.sent && !shared.is_closed) {
    boost::system::error_code cancelled;
    co_await shared.filled.async_wait(
        asio::redirect_error(asio::use_awaitable, cancelled));
  }
  shared.is_silent = false;
  if (shared.is_closed) {
    co_return RunEvent{
        -1, absl::StatusOr<Result>(shared.error.value_or(
                ResourceExhausted("not enough memory for the request")))};
  }
  std::optional<RunEvent> event = *std::move(shared.sent);
  shared.sent.reset();
  shared.emptied.cancel_one();
  co_return event;
}

void PromptRuns::Spawn(const std::shared_ptr<Shared>& shared,
                       asio::awaitable<void> run) {
  asio::co_spawn(shared->filled.get_executor(), std::move(run),
                 asio::bind_cancellation_slot(
                     shared->signals.emplace_back().slot(), RunEnd(shared)));
}

std::function<void(absl::Status)> PromptRuns::Interrupter() {
  return [weak = std::weak_ptr<Shared>(shared_),
          executor = shared_->filled.get_executor()](absl::Status why) {
    asio::post(executor, [weak, why = std::move(why)] {
      const std::shared_ptr<Shared> shared = weak.lock();
      if (shared == nullptr) return;
      shared->error = why;
      shared->Close();
    });
  };
}

asio::awaitable<void> PromptRuns::SendPings(Shared* shared) {
  while (!shared->is_closed) {
    shared->ping.expires_after(absl::ToChronoNanoseconds(kPingPeriod / 2));
    co_await shared->ping.async_wait(asio::use_awaitable);
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
  while (shared->sent && !shared->is_closed) {
    boost::system::error_code cancelled;
    co_await shared->emptied.async_wait(
        asio::redirect_error(asio::use_awaitable, cancelled));
  }
  if (shared->is_closed) {
    throw boost::system::system_error(asio::error::operation_aborted);
  }
  shared->sent.emplace(std::move(event));
  shared->filled.cancel();
}

asio::awaitable<void> PromptRuns::Report(Shared* shared,
                                         asio::awaitable<absl::Status> work,
                                         std::shared_ptr<absl::Status> result) {
  *result = co_await std::move(work);
  std::optional<RunEvent> is_done;
  co_await Send(shared, is_done);
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

// Call: one call of a generator's user, from any thread: its timeout, its stop
// token, and its awaited engine operations, one at a time.
//
//   const auto call = Call::Make(core, options, deadline);
//   absl::StatusOr<Result> result = call->Await<Result>(
//       [&] { return core->engine().Generate(request); });
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stop_token>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "espalier/generator_core.h"

namespace espalier {

class Call : public std::enable_shared_from_this<Call> {
 public:
  template <typename T>
  using Start =
      absl::AnyInvocable<boost::asio::awaitable<absl::StatusOr<T>>() &&>;
  template <typename T>
  using Done = absl::AnyInvocable<void(absl::StatusOr<T>) &&>;  // no throw

  // Use Make.
  Call(std::shared_ptr<GeneratorCore> core, const CallOptions& options,
       const GeneratorCore::Deadline& deadline);
  // `deadline` is the end of options.timeout. Throws std::bad_alloc.
  static std::shared_ptr<Call> Make(std::shared_ptr<GeneratorCore> core,
                                    const CallOptions& options,
                                    const GeneratorCore::Deadline& deadline);

  // Runs `start` on the calls thread and passes its result to `done`, once: on
  // that thread, or on the caller's if nothing can run. Throws std::bad_alloc,
  // and then does not call `done`.
  template <typename T>
  void Run(Start<T> start, Done<T> done);

  // As Run, and waits for the result.
  // REQUIRES: not on the calls thread.
  template <typename T>
  absl::StatusOr<T> Await(Start<T> start);

 private:
  template <typename T>
  struct Operation {
    Start<T> start;
    Done<T> done;
  };

  // The rest runs on the calls thread.
  template <typename T>
  class Finisher;
  template <typename T>
  void Begin(int64_t number, const std::shared_ptr<Operation<T>>& operation);
  template <typename T>
  void Finish(int64_t number, Operation<T>& operation,
              absl::StatusOr<T> result);
  void WatchTime();
  void End(absl::Status why);

  const std::shared_ptr<GeneratorCore> core_;  // before the timer
  const absl::Duration timeout_;
  const GeneratorCore::Deadline deadline_;

  // Touched on the calls thread.
  std::optional<boost::asio::steady_timer> timer_;  // once it runs
  boost::asio::cancellation_signal signal_;
  bool is_waiting_ = false;  // for the engine
  absl::Status ended_by_;    // not OK: nothing is to be awaited any more

  // Last: it uses the others. Set before the call is used.
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;
};

// When `timeout` from now is over; max() for never. These do not throw.
GeneratorCore::Deadline DeadlineOf(absl::Duration timeout);
absl::Status TimedOut(absl::Duration timeout);
absl::Status StoppedByCaller();
absl::Status OutOfMemory();
// Converts an operation's exception: cancellation or lack of memory.
absl::Status StatusOf(std::exception_ptr error);

template <typename T>
void Call::Run(Start<T> start, Done<T> done) {
  auto operation = std::make_shared<Operation<T>>(
      Operation<T>{std::move(start), std::move(done)});
  const std::optional<int64_t> number = core_->BeginOperation();
  if (!number.has_value()) {
    return std::move(operation->done)(
        absl::CancelledError("the generator is destroyed"));
  }
  try {
    boost::asio::post(core_->calls_context(),
                      [self = shared_from_this(), number = *number, operation] {
                        self->Begin(number, operation);
                      });
  } catch (...) {
    core_->EndOperation(*number);
    throw;
  }
}

// Passes on the result of an operation. If asio lacks the memory to continue
// the operation's coroutine, it destroys this object and throws; the destructor
// then reports the lack of memory.
template <typename T>
class Call::Finisher {
 public:
  Finisher(std::shared_ptr<Call> call, int64_t number,
           std::shared_ptr<Operation<T>> operation)
      : call_(std::move(call)),
        number_(number),
        operation_(std::move(operation)) {}
  Finisher(Finisher&&) = default;
  ~Finisher() {
    if (call_ != nullptr) Finish(OutOfMemory());
  }

  void operator()(std::exception_ptr error, absl::StatusOr<T> result) {
    if (error != nullptr) result = StatusOf(error);
    Finish(std::move(result));
  }

 private:
  void Finish(absl::StatusOr<T> result) {
    const std::shared_ptr<Call> call = std::exchange(call_, nullptr);
    call->is_waiting_ = false;
    call->template Finish<T>(number_, *operation_, std::move(result));
  }

  std::shared_ptr<Call> call_;  // null: it is finished, or another does it
  int64_t number_;
  std::shared_ptr<Operation<T>> operation_;
};

template <typename T>
void Call::Begin(int64_t number,
                 const std::shared_ptr<Operation<T>>& operation) {
  Finisher<T> finisher(shared_from_this(), number, operation);
  try {
    if (!timer_.has_value()) WatchTime();
    if (!ended_by_.ok()) return finisher(nullptr, ended_by_);
    is_waiting_ = true;
    boost::asio::co_spawn(core_->calls_context(), std::move(operation->start)(),
                          boost::asio::bind_cancellation_slot(
                              signal_.slot(), std::move(finisher)));
  } catch (const std::bad_alloc&) {
    // The finisher says so.
  }
}

template <typename T>
void Call::Finish(int64_t number, Operation<T>& operation,
                  absl::StatusOr<T> result) {
  // A result that arrived in time counts.
  if (!result.ok() && !ended_by_.ok()) result = ended_by_;
  std::move(operation.done)(std::move(result));
  core_->EndOperation(number);
}

template <typename T>
absl::StatusOr<T> Call::Await(Start<T> start) {
  struct Answer {
    std::mutex mutex;
    std::condition_variable is_there;
    std::optional<absl::StatusOr<T>> value;
  };
  const auto answer = std::make_shared<Answer>();
  Run<T>(std::move(start), [answer](absl::StatusOr<T> result) {
    const std::lock_guard<std::mutex> lock(answer->mutex);
    answer->value.emplace(std::move(result));
    answer->is_there.notify_one();
  });
  std::unique_lock<std::mutex> lock(answer->mutex);
  answer->is_there.wait(lock, [&] { return answer->value.has_value(); });
  return *std::move(answer->value);
}

}  // namespace espalier

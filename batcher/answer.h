// Answer: one value sent from an engine's strand to a coroutine that waits
// elsewhere (a oneshot channel).
//
// Either side may come first. The waiting coroutine may be cancelled, or
// destroyed with its context; then the value is dropped. The sender may be
// destroyed before it sends; then the waiter receives the sender's `otherwise`.
// So every wait ends.
//
//   const auto answer = std::make_shared<Answer<int>>();
//   core->Post([send = SendTo(answer, -1)](EngineCore&) { send(7); });
//   const std::optional<int> value = co_await Answer<int>::Await(answer);
//
// Thread safety: one coroutine awaits, once; any thread gives the value.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/status.h"
#include "batcher/context_link.h"

namespace espalier {

// Suspends a coroutine until Wake.
class Waiter : public std::enable_shared_from_this<Waiter> {
 public:
  // Wakes the sleeping coroutine, or the next one that would sleep.
  void Wake() noexcept { End(Outcome::kWoken); }

  // Returns true if it was woken, false if it was cancelled.
  static boost::asio::awaitable<bool> Sleep(std::shared_ptr<Waiter> waiter);

 private:
  using Handler = absl::AnyInvocable<void(bool) &&>;
  enum class Outcome { kNone, kWoken, kCancelled };

  void Begin(const boost::asio::any_io_executor& executor, Handler handler);
  void End(Outcome outcome) noexcept;
  static void Post(ContextLink& link, Handler handler, Outcome outcome);
  void OnContextEnd();

  std::mutex mutex_;
  Outcome outcome_ ABSL_GUARDED_BY(mutex_) = Outcome::kNone;  // the first one
  // Set while it sleeps.
  Handler handler_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ContextLink> link_ ABSL_GUARDED_BY(mutex_);
};

template <typename T>
class Answer {
 public:
  // Gives the value. Only the first call counts.
  void Give(T value) noexcept {
    if (given_.exchange(true)) return;
    value_ = std::move(value);
    waiter_->Wake();
  }

  // Returns the value; nullopt if the wait was cancelled.
  static boost::asio::awaitable<std::optional<T>> Await(
      std::shared_ptr<Answer> answer) {
    // Written out: GCC 12 miscompiles an awaitable's argument in a condition.
    const bool is_woken = co_await Waiter::Sleep(answer->waiter_);
    std::optional<T> value;
    if (is_woken) value = std::move(answer->value_);
    co_return value;
  }

 private:
  std::atomic<bool> given_{false};
  std::optional<T> value_;  // the waiter orders writing and reading it
  const std::shared_ptr<Waiter> waiter_ = std::make_shared<Waiter>();
};

// Returns a function that gives `answer` its value. If all copies are destroyed
// without a call, `otherwise` is given.
template <typename T>
std::function<void(T)> SendTo(std::shared_ptr<Answer<T>> answer, T otherwise) {
  struct Sender {
    ~Sender() { answer->Give(std::move(otherwise)); }
    std::shared_ptr<Answer<T>> answer;
    T otherwise;
  };
  auto sender =
      std::make_shared<Sender>(std::move(answer), std::move(otherwise));
  return [sender = std::move(sender)](T value) {
    sender->answer->Give(std::move(value));
  };
}

// Checks that the coroutine that awaits this may wait for an answer. Errors:
// kCancelled if its caller was cancelled before, under
// throw_if_cancelled(false); kFailedPrecondition if its cancellation would be a
// race: asio requires that a coroutine is cancelled on its own executor, which
// on several threads must be a strand. (The number of threads that run an
// io_context is not accessible.)
boost::asio::awaitable<absl::Status> CheckCanWait();

// Returns the error of a coroutine that is cancelled while it waits.
inline absl::Status CancelledByCaller() {
  return MakeError(absl::StatusCode::kCancelled, "cancelled by its caller");
}

// Returns the error of callers whose engine's context has ended. Every answer
// holds it as its `otherwise`, so it is a constant.
inline const absl::Status& ContextEnded() {
  static const auto* const ended = new absl::Status(MakeError(
      absl::StatusCode::kCancelled, "the engine's context has ended"));
  return *ended;
}

// Scope guard: calls `cancel` when a coroutine stops waiting without an answer,
// even if it is destroyed.
class CancelOnDestruction {
 public:
  explicit CancelOnDestruction(std::function<void()> cancel)
      : cancel_(std::move(cancel)) {}
  ~CancelOnDestruction() {
    if (cancel_ != nullptr) cancel_();
  }
  CancelOnDestruction(const CancelOnDestruction&) = delete;
  CancelOnDestruction& operator=(const CancelOnDestruction&) = delete;

  void Answered() { cancel_ = nullptr; }

 private:
  std::function<void()> cancel_;
};

}  // namespace espalier

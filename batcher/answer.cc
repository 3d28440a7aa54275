#include "batcher/answer.h"

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/execution/occupancy.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/memory.h"
#include "base/status.h"

namespace espalier {

namespace asio = boost::asio;

asio::awaitable<bool> Waiter::Sleep(std::shared_ptr<Waiter> waiter) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  const auto begin = [waiter, &executor](auto handler) {
    asio::cancellation_slot slot =
        asio::get_associated_cancellation_slot(handler);
    const auto cancel =
        [weak = std::weak_ptr<Waiter>(waiter)](asio::cancellation_type type) {
          const std::shared_ptr<Waiter> self = weak.lock();
          if (self == nullptr || type == asio::cancellation_type::none) return;
          self->End(Outcome::kCancelled);
        };
    UntilThereIsMemory([&] {
      if (slot.is_connected()) slot.assign(cancel);
    });
    waiter->Begin(executor, UntilThereIsMemory(
                                [&] { return Handler(std::move(handler)); }));
  };
  co_return co_await asio::async_initiate<const asio::use_awaitable_t<>&,
                                          void(bool)>(begin,
                                                      asio::use_awaitable);
}

// The link keeps the context running, and calls on_end if the context ends
// nevertheless.
void Waiter::Begin(const asio::any_io_executor& executor, Handler handler) {
  const auto on_end = [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->OnContextEnd();
  };
  std::shared_ptr<ContextLink> link;
  UntilThereIsMemory([&] {
    link = std::make_shared<ContextLink>(executor, on_end);
    link->Hold();
  });
  Outcome outcome;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    outcome = outcome_;
    if (outcome == Outcome::kNone) {
      handler_ = std::move(handler);
      link_ = std::move(link);
      return;
    }
  }
  Post(*link, std::move(handler), outcome);
}

// Holds the mutex until the handler and then the link are moved out of this
// frame. A context that ends meanwhile waits for the mutex in OnContextEnd, so
// the handler is destroyed before its context. The gate's mutex is locked
// within this one, never the other way round.
void Waiter::End(Outcome outcome) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (outcome_ != Outcome::kNone) return;
  outcome_ = outcome;
  if (handler_ == nullptr) return;  // no coroutine sleeps yet, or any more
  const auto link = std::exchange(link_, nullptr);
  Post(*link, std::exchange(handler_, nullptr), outcome);
}

void Waiter::Post(ContextLink& link, Handler handler, Outcome outcome) {
  const bool woken = outcome == Outcome::kWoken;
  // Shared, because a failed post destroys its copy.
  const auto shared = UntilThereIsMemory(
      [&] { return std::make_shared<Handler>(std::move(handler)); });
  UntilThereIsMemory(
      [&] { link.Post([shared, woken] { std::move (*shared)(woken); }); });
}

// Destroys the handler of a sleeping coroutine with its context.
void Waiter::OnContextEnd() {
  Handler handler;
  std::shared_ptr<ContextLink> link;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (outcome_ == Outcome::kNone) outcome_ = Outcome::kCancelled;
  handler = std::exchange(handler_, nullptr);
  link = std::exchange(link_, nullptr);
}

asio::awaitable<absl::Status> CheckCanWait() {
  const asio::cancellation_state cancellation =
      co_await asio::this_coro::cancellation_state;
  if (cancellation.cancelled() != asio::cancellation_type::none) {
    co_return CancelledByCaller();  // throw_if_cancelled is false
  }
  if (!cancellation.slot().is_connected()) co_return absl::OkStatus();
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  const auto* const pool = executor.target<asio::thread_pool::executor_type>();
  if (pool == nullptr) co_return absl::OkStatus();
  const size_t num_threads = asio::query(*pool, asio::execution::occupancy);
  if (num_threads <= 1) co_return absl::OkStatus();
  co_return FailedPrecondition(
      "a coroutine that can be cancelled runs on a thread_pool of ",
      num_threads,
      " threads without a strand, which asio does not allow; co_spawn it on "
      "asio::make_strand(pool)");
}

}  // namespace espalier

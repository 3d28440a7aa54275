#include "serve/compile_queue.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <iterator>
#include <new>
#include <system_error>
#include <utility>

#include "base/ids.h"
#include "base/memory.h"
#include "base/status.h"

namespace espalier::serve {

namespace asio = boost::asio;

namespace {

// Cost of a language, in FairTurns' unit. Large, because it is divided by the
// number of tenants.
constexpr int64_t kCost = 1 << 20;

absl::Status QueueStopped() {
  return MakeError(absl::StatusCode::kUnavailable,
                   "the server is shutting down");
}

}  // namespace

// A thread sets `result` before the caller's executor sets is_done, on which
// the caller reads it.
struct CompileQueue::Waiter {
  Waiter(const asio::any_io_executor& executor, Work what)
      : work(std::move(what)), wakes(executor) {
    wakes.expires_at(
        work.deadline.value_or(asio::steady_timer::time_point::max()));
  }

  const Work work;
  const absl::Time since = absl::Now();
  Turn turn;
  bool is_queued = false;  // in turns_; guarded by the queue's mutex
  absl::Status result;
  bool is_done = false;
  asio::steady_timer wakes;
};

absl::Status CompileQueue::Start(int num_threads) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    running_.reserve(num_threads);
  }
  const std::lock_guard<std::mutex> lock(join_mutex_);
  try {
    for (int i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this] { CompileAll(); });
    }
  } catch (const std::system_error& error) {
    return MakeError(
        absl::StatusCode::kUnavailable,
        "cannot start a thread to compile constraints: ", error.what());
  }
  return absl::OkStatus();
}

void CompileQueue::Stop() {
  Waiters stopped;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopped_ = true;
    turns_.Clear();
    stopped.swap(waiting_);
  }
  has_work_.notify_all();
  Wake(stopped, QueueStopped());
  const std::lock_guard<std::mutex> lock(join_mutex_);
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

CompileQueue::Stats CompileQueue::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Stats stats = stats_;
  stats.num_waiting = std::ssize(waiting_);
  return stats;
}

absl::StatusOr<std::shared_ptr<CompileQueue::Waiter>> CompileQueue::Add(
    const asio::any_io_executor& executor, Work work) {
  auto waiter = std::make_shared<Waiter>(executor, std::move(work));
  const ConstraintLanguage* const language = waiter->work.language.get();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_stopped_) return QueueStopped();
  // Its waiters are woken afterwards, under the lock.
  if (compiler_.is_compiled(*language)) return nullptr;
  const int64_t priority = waiter->work.priority;
  waiter->turn = Turn::Of(priority, stats_.num_compiled, RequestId{next_id_++});
  const auto added = waiting_.emplace(waiter->turn, waiter).first;
  if (std::ranges::find(running_, language) != running_.end()) return waiter;
  try {
    turns_.Push(waiter->turn, priority, waiter->work.tenant, kCost);
  } catch (const std::bad_alloc&) {
    waiting_.erase(added);
    throw;
  }
  waiter->is_queued = true;
  has_work_.notify_one();
  return waiter;
}

void CompileQueue::Remove(Waiter* waiter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++stats_.num_waits;
  stats_.time_waited += absl::Now() - waiter->since;
  if (waiting_.erase(waiter->turn) > 0 && waiter->is_queued) {
    turns_.Remove(waiter->turn);
  }
}

asio::awaitable<absl::Status> CompileQueue::Wait(Work work) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  const absl::StatusOr<std::shared_ptr<Waiter>> added =
      Add(executor, std::move(work));
  if (!added.ok()) co_return added.status();
  const std::shared_ptr<Waiter> waiter = *added;
  if (waiter == nullptr) co_return absl::OkStatus();
  boost::system::error_code woken;
  co_await waiter->wakes.async_wait(
      asio::redirect_error(asio::use_awaitable, woken));
  Remove(waiter.get());
  if (waiter->is_done) co_return waiter->result;
  if (woken) {
    co_return MakeError(absl::StatusCode::kCancelled, "the client has gone");
  }
  co_return MakeError(absl::StatusCode::kDeadlineExceeded,
                      "the deadline has passed");
}

std::shared_ptr<ConstraintLanguage> CompileQueue::TakeNext() {
  const std::shared_ptr<ConstraintLanguage> language =
      waiting_.at(turns_.NextRequest())->work.language;
  waiting_.at(turns_.NextRequest())->is_queued = false;
  turns_.Take();
  for (const auto& [turn, waiter] : waiting_) {
    if (!waiter->is_queued || waiter->work.language != language) continue;
    waiter->is_queued = false;
    turns_.Remove(turn);
  }
  return language;
}

CompileQueue::Waiters CompileQueue::TakeWaitersFor(
    const ConstraintLanguage* language) {
  Waiters taken;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto next = std::next(it);
    if (it->second->work.language.get() == language) {
      taken.insert(waiting_.extract(it));
    }
    it = next;
  }
  return taken;
}

void CompileQueue::CompileAll() {
  while (true) {
    std::shared_ptr<ConstraintLanguage> language;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      has_work_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return is_stopped_ || !turns_.empty();
      });
      if (is_stopped_) return;
      language = TakeNext();
      running_.push_back(language.get());
    }
    const absl::Time begin = absl::Now();
    const absl::Status result = Try(language.get());
    const absl::Duration time = absl::Now() - begin;
    Waiters done;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::erase(running_, language.get());
      ++stats_.num_compiled;
      stats_.time_compiled += time;
      done = TakeWaitersFor(language.get());
    }
    Wake(done, result);
  }
}

absl::Status CompileQueue::Try(ConstraintLanguage* language) const {
  try {
    compiler_.compile(language);
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    return UntilThereIsMemory([] {
      return MakeError(absl::StatusCode::kUnavailable,
                       "not enough memory to compile a constraint");
    });
  } catch (const std::exception& error) {
    return UntilThereIsMemory([&] {
      return Internal("cannot compile a constraint: ", error.what());
    });
  }
}

void CompileQueue::Wake(const Waiters& waiters, const absl::Status& result) {
  for (const auto& [turn, waiter] : waiters) {
    waiter->result = result;
    UntilThereIsMemory([&waiter = waiter] {  // the caller waits for it
      asio::post(waiter->wakes.get_executor(), [waiter] {
        waiter->is_done = true;
        waiter->wakes.cancel();
      });
    });
  }
}

}  // namespace espalier::serve

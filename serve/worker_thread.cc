#include "serve/worker_thread.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include "base/memory.h"
#include "base/status.h"

namespace espalier::serve {

namespace asio = boost::asio;

namespace {

absl::Status Stopped() {
  return MakeError(absl::StatusCode::kUnavailable,
                   "the server is shutting down");
}

}  // namespace

// Its thread fills `result` before the caller's executor sets is_done, on which
// the caller reads it.
struct WorkerThread::Job {
  Job(const asio::any_io_executor& executor, Work to_do, std::string whose)
      : owner(std::move(whose)), work(std::move(to_do)), wakes(executor) {
    wakes.expires_at(asio::steady_timer::time_point::max());
  }

  const std::string owner;  // empty: none
  Work work;                // destroyed by its thread
  std::atomic<bool> is_wanted = true;
  absl::Status result = Stopped();
  bool is_done = false;
  asio::steady_timer wakes;
};

absl::Status WorkerThread::Start(int num_threads) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    running_.reserve(num_threads);
    num_threads_ = num_threads;
  }
  const std::lock_guard<std::mutex> lock(join_mutex_);
  try {
    for (int i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this] { DoAll(); });
    }
  } catch (const std::system_error& error) {
    return MakeError(absl::StatusCode::kUnavailable,
                     "cannot start a thread to ", purpose_, ": ", error.what());
  }
  return absl::OkStatus();
}

void WorkerThread::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopped_ = true;
  }
  has_work_.notify_all();
  const std::lock_guard<std::mutex> lock(join_mutex_);
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void WorkerThread::Destroy(std::shared_ptr<const void> large,
                           int64_t num_bytes) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_stopped_) return;
  try {
    to_destroy_.push_back(std::move(large));
  } catch (const std::bad_alloc&) {
    return;
  }
  num_bytes_to_return_ += num_bytes;
  has_work_.notify_one();
}

// Large work takes long to free, which is left to a thread. Work with an owner
// is freed here, because all threads may be busy for hours.
void WorkerThread::Drop(const std::shared_ptr<Job>& job) {
  Work work;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::erase(waiting_, job) == 0) return;
  if (!job->owner.empty()) {
    job->work.swap(work);
    return;
  }
  try {
    to_destroy_.push_back(std::make_shared<Work>(std::move(job->work)));
    has_work_.notify_one();
  } catch (const std::bad_alloc&) {
    // It is freed here.
  }
}

absl::Status WorkerThread::Add(const std::shared_ptr<Job>& job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_stopped_) return Stopped();
  if (std::ssize(waiting_) >= max_waiting_) {
    return ResourceExhausted("cannot ", purpose_, " now: ", max_waiting_,
                             " calls wait for it; try again later");
  }
  waiting_.push_back(job);
  has_work_.notify_one();
  return absl::OkStatus();
}

asio::awaitable<absl::Status> WorkerThread::Do(Work work, std::string owner) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  const auto job =
      std::make_shared<Job>(executor, std::move(work), std::move(owner));
  const absl::Status added = Add(job);
  if (!added.ok()) co_return added;
  boost::system::error_code woken;
  co_await job->wakes.async_wait(
      asio::redirect_error(asio::use_awaitable, woken));
  job->is_wanted = false;
  if (!job->is_done) {
    Drop(job);
    co_return MakeError(absl::StatusCode::kCancelled, "the client has gone");
  }
  co_return std::move(job->result);
}

int WorkerThread::NumRunning(const std::string& owner) const {
  if (owner.empty()) return 0;
  return static_cast<int>(std::ranges::count(running_, owner, &Job::owner));
}

std::shared_ptr<WorkerThread::Job> WorkerThread::TakeNext() {
  auto next = waiting_.end();
  int fewest = num_threads_;
  for (auto it = waiting_.begin(); it != waiting_.end() && fewest > 0; ++it) {
    const int count = NumRunning((*it)->owner);
    // After Stop each is taken, to be told.
    const bool may_begin =
        count == 0 || count < num_threads_ - 1 || is_stopped_;
    if (!may_begin || count >= fewest) continue;
    next = it;
    fewest = count;
  }
  if (next == waiting_.end()) return nullptr;
  std::shared_ptr<Job> job = std::move(*next);
  waiting_.erase(next);
  if (!job->owner.empty()) running_.push_back(job.get());
  return job;
}

void WorkerThread::EndRun(const Job* job) {
  if (job->owner.empty()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase(running_, job);
  has_work_.notify_all();
}

void WorkerThread::DoAll() {
  while (true) {
    std::shared_ptr<Job> job;
    std::vector<std::shared_ptr<const void>> to_destroy;
    bool is_stopped = false;
    bool returns_memory = false;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      has_work_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        if (job == nullptr) job = TakeNext();
        return is_stopped_ || job != nullptr || !to_destroy_.empty();
      });
      to_destroy.swap(to_destroy_);
      returns_memory = num_bytes_to_return_ >= kBytesToReturn;
      if (returns_memory) num_bytes_to_return_ = 0;
      is_stopped = is_stopped_;
      if (job == nullptr && is_stopped) return;
    }
    to_destroy.clear();
    if (returns_memory) ReturnFreeMemory();
    if (job == nullptr) continue;
    if (job->is_wanted) job->result = is_stopped ? Stopped() : Try(job->work);
    job->work = nullptr;
    EndRun(job.get());
    if (!job->is_wanted) continue;
    UntilThereIsMemory([&] { HandOver(job); });  // the caller waits for it
  }
}

absl::Status WorkerThread::Try(const Work& work) const {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return UntilThereIsMemory([&] {
      return MakeError(absl::StatusCode::kUnavailable, "not enough memory to ",
                       purpose_);
    });
  } catch (const std::exception& error) {
    return UntilThereIsMemory(
        [&] { return Internal("cannot ", purpose_, ": ", error.what()); });
  }
}

void WorkerThread::HandOver(const std::shared_ptr<Job>& job) {
  asio::post(job->wakes.get_executor(), [job] {
    job->is_done = true;
    job->wakes.cancel();
  });
}

}  // namespace espalier::serve

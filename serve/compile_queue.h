// CompileQueue: compiles the languages of constraints on a few threads, up to
// two seconds each, while their calls wait.
//
//   CompileQueue queue({compile, is_compiled});
//   RETURN_IF_ERROR(queue.Start(2));
//   absl::Status compiled = co_await queue.Wait({.language = language});
//
// Tenants take turns (batcher/scheduler/fair_turns.h). A language is compiled
// once for all calls that wait for it, at the first of their turns. A call that
// ends meanwhile, by its deadline or its client, leaves the queue at once. The
// queue has no limit of its own: calls have places among the requests of the
// engine (Engine::TakePlace).
//
// Thread safety: Wait from any executor's threads; Start before them; Stop and
// stats from any thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "batcher/scheduler/fair_turns.h"
#include "batcher/scheduler/turn.h"

namespace espalier {

class ConstraintLanguage;  // beam/constraint_cache.h

}  // namespace espalier

namespace espalier::serve {

class CompileQueue {
 public:
  struct Compiler {
    // Called by the threads of the queue. May throw.
    std::function<void(ConstraintLanguage*)> compile;
    std::function<bool(const ConstraintLanguage&)> is_compiled;
  };
  struct Work {
    std::shared_ptr<ConstraintLanguage> language;
    std::string tenant = {};  // takes turns with others
    int64_t priority = 0;     // lower ones first, as of requests
    std::optional<std::chrono::steady_clock::time_point> deadline = {};
  };
  struct Stats {
    int64_t num_waiting = 0;
    // Totals.
    int64_t num_compiled = 0;
    absl::Duration time_compiled;  // summed over threads
    int64_t num_waits = 0;         // that have ended
    absl::Duration time_waited;
  };

  explicit CompileQueue(Compiler compiler) : compiler_(std::move(compiler)) {}
  ~CompileQueue() { Stop(); }
  CompileQueue(const CompileQueue&) = delete;
  CompileQueue& operator=(const CompileQueue&) = delete;

  // Once.
  // Errors: kUnavailable if there are no threads to be had.
  absl::Status Start(int num_threads);
  // Ends waiting calls, and all later ones, with an error; then waits for the
  // languages that are being compiled.
  void Stop();

  // Returns when the language is compiled, at once if it is.
  // Errors: kDeadlineExceeded; kCancelled if the caller is cancelled, at once;
  // kUnavailable once it stops, or if memory runs out while it is compiled.
  // Throws std::bad_alloc.
  boost::asio::awaitable<absl::Status> Wait(Work work);

  Stats stats() const;

 private:
  struct Waiter;
  using Waiters = std::map<Turn, std::shared_ptr<Waiter>>;

  // Returns null if there is nothing to wait for.
  // Errors: kUnavailable once it has stopped.
  absl::StatusOr<std::shared_ptr<Waiter>> Add(
      const boost::asio::any_io_executor& executor, Work work);
  void Remove(Waiter* waiter);
  void CompileAll();
  // Starts the language whose turn it is.
  std::shared_ptr<ConstraintLanguage> TakeNext()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Waiters TakeWaitersFor(const ConstraintLanguage* language)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Try(ConstraintLanguage* language) const;
  static void Wake(const Waiters& waiters, const absl::Status& result);

  const Compiler compiler_;
  mutable std::mutex mutex_;
  std::condition_variable has_work_;
  Waiters waiting_ ABSL_GUARDED_BY(mutex_);
  FairTurns turns_ ABSL_GUARDED_BY(mutex_);  // languages not started
  // Being compiled. Has room for one of each thread.
  std::vector<const ConstraintLanguage*> running_ ABSL_GUARDED_BY(mutex_);
  int64_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  Stats stats_ ABSL_GUARDED_BY(mutex_);
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::mutex join_mutex_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace espalier::serve

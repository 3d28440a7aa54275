// EngineCore: an engine (engine.h) behind its coroutines. It owns the strand,
// the scheduler that lives on it, and the use of the executor: plans go to the
// executor, as many ahead as it takes, and results come back to the strand.
//
// Three owners keep the state alive: the engine, work on its way to the strand,
// and the steps in flight. The callback that an executor gets does not: so no
// executor is destroyed on a thread of its own.
//
// Thread safety: Post, NextId and Interrupt from any thread; the rest on the
// strand.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/stopwatch.h"
#include "batcher/engine_options.h"
#include "batcher/engine_stats.h"
#include "batcher/mailbox.h"
#include "batcher/queue_limits.h"
#include "batcher/scheduler/scheduler.h"
#include "batcher/step_watchdog.h"
#include "batcher/wake_timer.h"
#include "beam/prepared_request.h"
#include "beam/strategy/search_watcher.h"
#include "exec_request/step_executor.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

class EngineCore : public std::enable_shared_from_this<EngineCore> {
 public:
  static std::shared_ptr<EngineCore> Create(
      const boost::asio::any_io_executor& executor,
      std::shared_ptr<StepExecutor> steps, const EngineOptions& options);
  EngineCore(std::shared_ptr<StepExecutor> steps, const EngineOptions& options);
  ~EngineCore();

  // Once, before all else. False if another engine uses the executor.
  bool TakeExecutor();

  // Calls work(core) on the strand, from any thread; destroys it instead if the
  // context has ended.
  template <typename Work>
  void Post(Work work) noexcept {
    strand_->Post([self = shared_from_this(),
                   work = std::move(work)]() mutable { work(*self); });
  }

  // The same, but throws std::bad_alloc, and has done nothing then.
  template <typename Work>
  void PostOrThrow(Work work) {
    strand_->PostOrThrow([self = shared_from_this(),
                          work = std::move(work)]() mutable { work(*self); });
  }

  RequestId NextId() { return RequestId{next_id_++}; }

  // Gives up the steps in flight soon: no request waits for them. Any thread.
  void Interrupt() { stops_.StopAll(); }

  // The rest runs on the strand, and does not throw: a call without memory for
  // its work ends its request, and waits for the memory that its error needs.

  void Submit(RequestId id, PreparedRequest request,
              const Scheduler::Done& done,
              std::unique_ptr<SearchWatcher> watcher = nullptr);
  void Cancel(RequestId id);

  // Refuses requests from now on; `drained` is called when none is held any
  // more. The caller made it, since making one allocates.
  void Drain(std::function<void()> drained);

  // `stopped` is called when nothing runs any more. The caller made it, since
  // making one allocates.
  void Stop(std::string_view why, std::function<void()> stopped);

  int ResetPrefixCache() { return scheduler_.ResetPrefixCache(); }
  EngineStats Stats() const;

  // Constant after construction.
  const ModelDescription description;
  const std::shared_ptr<QueueLimits> limits;
  const std::shared_ptr<const Tokenizer> tokenizer;  // or null
  const std::optional<SpeculationParams> speculate;  // by default
  // Made while there is some: who waited for the memory of an error would keep
  // that of its request from others who wait.
  const absl::Status too_little_memory;

 private:
  // A plan that the executor was given.
  struct StepInFlight {
    bool only_ended = false;  // no sequence runs in it
    std::optional<absl::StatusOr<StepResult>> result = {};
  };

  // For good, with the first reason.
  void EndRequests(std::string_view why);
  // No work runs on the strand any more: the context's owner calls this alone.
  // The results of steps in flight are dropped.
  void OnContextEnd();
  // Before the first request that has a deadline. Throws std::bad_alloc and
  // boost::system::system_error.
  void MakeTimer();
  // Plans after the work that is already queued, so that requests that arrive
  // together start together.
  void PostStep();
  void Pump();
  // False if there is nothing to run, or nothing may.
  bool StartStep();
  // What takes a step's result to the strand, from any thread.
  StepExecutor::Done ReportTo(const std::shared_ptr<StepInFlight>& step);
  // In the order of the steps: one that could not be started reports before
  // those that still run.
  void TakeResults();
  // A step has become the oldest in flight. Until it is answered, or late, this
  // and the context live on.
  void WatchOldest();
  // Of the watchdog: `step` may have been answered meanwhile.
  void OnLate(int64_t step);
  void CallOnIdle();
  void CallOnDrained();
  void GiveExecutorBack();

  std::atomic<int64_t> next_id_{0};
  StepStops stops_;  // of the steps in flight
  const int max_plans_in_flight_;
  // Constant after Create.
  std::shared_ptr<Mailbox> strand_;
  std::unique_ptr<StepWatchdog> watchdog_;       // null without a timeout
  std::shared_ptr<UnansweredSteps> unanswered_;  // as well

  // Touched on the strand.
  const std::shared_ptr<StepExecutor> steps_;
  bool has_executor_ = false;      // for itself alone
  bool executor_is_empty_ = true;  // no request is named and not ended
  Scheduler scheduler_;
  // Pumps at the earliest deadline, also while a step runs. Null until a
  // request has one, and after EndRequests: it does not outlive the context.
  std::unique_ptr<WakeTimer> timer_;
  std::deque<std::shared_ptr<StepInFlight>> in_flight_;  // oldest first
  std::shared_ptr<EngineCore> while_in_flight_;          // this, or null
  // The last one: nothing may go on from it.
  bool plan_was_refused_ = false;
  bool pump_posted_ = false;
  std::optional<absl::Status> stopped_by_;  // what requests get from then on
  // The same, until the oldest step in flight is answered, which is late.
  std::optional<absl::Status> late_by_;
  std::vector<std::function<void()>> on_idle_;
  bool is_draining_ = false;
  std::vector<std::function<void()>> on_drained_;
  Stopwatch step_watch_;  // since the oldest step in flight began to be so
  EngineStats stats_;
};

}  // namespace espalier

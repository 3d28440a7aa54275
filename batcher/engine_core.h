// EngineCore: the implementation of an engine (engine.h) behind its coroutines.
// It owns the strand, the scheduler on it, and the use of a StepExecutor: plans
// go to the executor, as many in flight as it takes, and results return to the
// strand. Lists of legal tokens that take long are made by a thread of its own
// (list_maker.h), and their group joins again when they are there.
//
// Three owners keep it alive: the engine, work posted to the strand, and steps
// in flight. The executor's callback does not, so no executor is destroyed on
// its own thread.
//
// Thread safety: Post, PostOrThrow, NextId, Interrupt and the constants from
// any thread; Create and TakeExecutor before the first Post; all else on the
// strand. The destructor may wait for steps in flight, for the rest of
// step_timeout. If they have no result by then, it leaks the executor.
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
#include "batcher/list_maker.h"
#include "batcher/mailbox.h"
#include "batcher/queue_limits.h"
#include "batcher/scheduler/scheduler.h"
#include "batcher/step_watchdog.h"
#include "batcher/wake_timer.h"
#include "beam/constraint_cache.h"
#include "beam/prepared_request.h"
#include "beam/strategy/search_watcher.h"
#include "constrain/item_catalogues.h"
#include "exec_request/step_executor.h"
#include "request/running_requests.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

class EngineCore : public std::enable_shared_from_this<EngineCore> {
 public:
  static std::shared_ptr<EngineCore> Create(
      const boost::asio::any_io_executor& context,
      std::shared_ptr<StepExecutor> steps, const EngineOptions& options);
  EngineCore(std::shared_ptr<StepExecutor> steps, const EngineOptions& options);
  ~EngineCore();

  // Called once, before all else. Returns false if another engine uses the
  // executor.
  bool TakeExecutor();

  // Calls work(core) on the strand, from any thread; destroys `work` if the
  // context has ended. Waits if memory runs out.
  template <typename Work>
  void Post(Work work) noexcept {
    strand_->Post([self = shared_from_this(),
                   work = std::move(work)]() mutable { work(*self); });
  }

  // As Post, but throws std::bad_alloc if memory runs out, having posted
  // nothing.
  template <typename Work>
  void PostOrThrow(Work work) {
    strand_->PostOrThrow([self = shared_from_this(),
                          work = std::move(work)]() mutable { work(*self); });
  }

  RequestId NextId() { return RequestId{next_id_++}; }

  // Stops the steps in flight and all later ones. Called when no request waits
  // for them any more.
  void Interrupt() { stops_.StopAll(); }

  // The functions below run on the strand and do not throw. If memory runs out,
  // Submit fails its request; the others wait for memory.

  void Submit(RequestId id, PreparedRequest request,
              const Scheduler::Done& done,
              std::unique_ptr<SearchWatcher> watcher = nullptr);
  void Cancel(RequestId id);

  // Refuses requests from now on. Calls `drained` when no request is held, and
  // no step is in flight or the oldest one is late; or when the context ends.
  // The caller creates `drained`, because that allocates.
  void Drain(std::function<void()> drained);

  // Ends all requests, with the reason `why`. Calls `stopped` when no step is
  // in flight or the oldest one is late, or when the context ends. The caller
  // creates `stopped`, because that allocates.
  void Stop(std::string_view why, std::function<void()> stopped);

  int ResetPrefixCache() { return scheduler_.ResetPrefixCache(); }

  // Starts no step until Resume, once the requests that have started are dealt
  // with as `running` says. Calls `paused` when no step is in flight; with an
  // error, and then steps start again, if another pause lasts, the engine is
  // stopped, or a step in flight is late. The caller creates `paused`, because
  // that allocates.
  void Pause(int64_t pause, RunningRequests running,
             std::function<void(absl::Status)> paused);
  // Ends this pause; does nothing if it has ended.
  void Resume(int64_t pause);
  // During a pause: steps from now on have other weights, of this version.
  void SetWeightsVersion(int64_t version);
  // During a pause: the weights are useless. Ends all requests, and refuses
  // others, with `why`, until SetWeightsVersion.
  void BreakWeights(absl::Status why);
  int64_t NextPause() { return next_pause_++; }
  EngineStats Stats() const;

  // Constant after construction.
  const ModelDescription description;
  const std::shared_ptr<QueueLimits> limits;
  const std::shared_ptr<const Tokenizer> tokenizer;  // null without text
  const std::optional<SpeculationParams> speculate;  // default of requests
  const std::unique_ptr<ConstraintCache> constraints;
  const std::shared_ptr<ItemCatalogues> items;
  // Allocated in advance: a request that waited for memory for its error would
  // hold memory that other waiting requests need.
  const absl::Status too_little_memory;

 private:
  // A plan that the executor has.
  struct StepInFlight {
    bool only_ended = false;  // no sequence runs in it
    std::optional<absl::StatusOr<StepResult>> result = {};
  };

  // Ends all requests for good, with the reason of the first call.
  void EndRequests(std::string_view why);
  // Called by the context's owner when no work runs on the strand any more.
  // Drops the results of steps in flight.
  void OnContextEnd();
  // Called before the first request with a deadline. Throws std::bad_alloc and
  // boost::system::system_error.
  void MakeTimer();
  // Calls Pause's function if no step is needed first. Returns true if the
  // engine is paused. REQUIRES: no step is in flight.
  bool ReachPause();
  // Ends a pause that was not reached yet.
  void FailPause(const absl::Status& why);
  // Posts Pump behind queued work, so that requests that arrive together start
  // together.
  void PostStep();
  void Pump();
  // Returns false if no step can run.
  bool StartStep();
  // Returns the callback that posts a step's result to the strand, from any
  // thread.
  StepExecutor::Done ReportTo(const std::shared_ptr<StepInFlight>& step);
  // Applies results in the order of the steps: a step that failed to start
  // may report before earlier ones that still run.
  void TakeResults();
  // Called when a step becomes the oldest in flight. Keeps this and the context
  // alive until the step has a result or is late.
  void WatchOldest();
  // Called by the watchdog. `step` may have a result by now.
  void OnLate(int64_t step);
  // Has the lists of a group made. It continues after OnListed.
  void MakeLists(ListWork work);
  void OnListed(RequestId request, const std::weak_ptr<const void>& is_awaited);
  // Keeps the context's run() while steps are in flight or lists are made.
  void HoldContext();
  void ReleaseContext();
  void CallOnIdle();
  void CallOnDrained();
  void GiveExecutorBack();

  // From Pause to Resume.
  struct Pausing {
    int64_t pause;
    RunningRequests running;
    std::function<void(absl::Status)> paused;  // null once it was called
  };

  std::atomic<int64_t> next_id_{0};
  std::atomic<int64_t> next_pause_{0};
  StepStops stops_;  // for the steps in flight
  const int max_plans_in_flight_;
  // Constant after Create.
  std::shared_ptr<Mailbox> strand_;
  std::unique_ptr<StepWatchdog> watchdog_;       // null without a timeout
  std::shared_ptr<UnansweredSteps> unanswered_;  // null without a timeout

  // Touched on the strand.
  const std::shared_ptr<StepExecutor> steps_;
  bool has_executor_ = false;      // exclusive use
  bool executor_is_empty_ = true;  // it holds no state of requests
  Scheduler scheduler_;
  // Pumps at the earliest deadline, even while a step runs. Null until a
  // request has a deadline, and after EndRequests, because it must not outlive
  // the context.
  std::unique_ptr<WakeTimer> timer_;
  std::deque<std::shared_ptr<StepInFlight>> in_flight_;  // oldest first
  std::shared_ptr<EngineCore> while_in_flight_;          // this, or null
  int num_lists_awaited_ = 0;  // groups whose lists are being made
  // The executor refused the last plan, so no continuation of it is possible.
  bool plan_was_refused_ = false;
  bool pump_posted_ = false;
  std::optional<absl::Status> stopped_by_;  // error of later requests
  std::optional<Pausing> pausing_;
  // As stopped_by_, until the weights are replaced.
  std::optional<absl::Status> broken_by_;
  // As stopped_by_, while the oldest step in flight is late.
  std::optional<absl::Status> late_by_;
  std::vector<std::function<void()>> on_idle_;
  bool is_draining_ = false;
  std::vector<std::function<void()>> on_drained_;
  Stopwatch step_watch_;  // since the oldest step in flight became the oldest
  EngineStats stats_;
  ListMaker list_maker_;  // reports to the strand
};

}  // namespace espalier

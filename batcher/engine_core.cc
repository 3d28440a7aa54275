#include "batcher/engine_core.h"

#include <algorithm>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <new>
#include <string>

#include "base/field_error.h"
#include "base/memory.h"
#include "base/status.h"
#include "batcher/answer.h"
#include "batcher/execute_once.h"

namespace espalier {
namespace {

// Returns nanoseconds on the steady clock.
int64_t Now() {
  return std::chrono::nanoseconds(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

absl::Status Draining() {
  return UntilThereIsMemory([] {
    return MakeError(absl::StatusCode::kUnavailable,
                     "the engine drains and takes no more requests");
  });
}

}  // namespace

std::shared_ptr<EngineCore> EngineCore::Create(
    const boost::asio::any_io_executor& context,
    std::shared_ptr<StepExecutor> steps, const EngineOptions& options) {
  const auto core = std::make_shared<EngineCore>(std::move(steps), options);
  core->strand_ =
      Mailbox::Create(context, [weak = std::weak_ptr<EngineCore>(core)] {
        if (const auto self = weak.lock()) self->OnContextEnd();
      });
  core->scheduler_.MakeListsBy(
      [core = core.get()](ListWork work) { core->MakeLists(std::move(work)); });
  if (options.step_timeout == absl::InfiniteDuration()) return core;
  core->unanswered_ = std::make_shared<UnansweredSteps>();
  core->watchdog_ = std::make_unique<StepWatchdog>(
      options.step_timeout,
      [strand = core->strand_,
       weak = std::weak_ptr<EngineCore>(core)](int64_t step) {
        strand->Post([weak, step] {
          if (const auto self = weak.lock()) self->OnLate(step);
        });
      });
  return core;
}

EngineCore::EngineCore(std::shared_ptr<StepExecutor> steps,
                       const EngineOptions& options)
    : description(steps->description()),
      limits(std::make_shared<QueueLimits>(options)),
      tokenizer(options.tokenizer),
      speculate(options.speculate),
      constraints(std::make_unique<ConstraintCache>(tokenizer, description)),
      items(options.items != nullptr ? options.items
                                     : std::make_shared<ItemCatalogues>()),
      too_little_memory(ResourceExhausted("not enough memory for the request")),
      max_plans_in_flight_(steps->max_plans_in_flight()),
      steps_(std::move(steps)),
      scheduler_(description, options.scheduler, max_plans_in_flight_ > 1),
      list_maker_([this](RequestId request,
                         const std::weak_ptr<const void>& is_awaited) {
        strand_->Post([weak = weak_from_this(), request, is_awaited] {
          if (const auto self = weak.lock()) {
            self->OnListed(request, is_awaited);
          }
        });
      }) {
  KeepSpareMemory();
}

EngineCore::~EngineCore() {
  if (executor_is_empty_) GiveExecutorBack();
  // Steps in flight have the rest of their time limit.
  if (watchdog_ != nullptr &&
      !unanswered_->AwaitNone(watchdog_->timeout() - step_watch_.Elapsed())) {
    KeepForever(steps_);
  }
}

bool EngineCore::TakeExecutor() {
  return has_executor_ = steps_->sole_use().Take();
}

void EngineCore::Submit(RequestId id, PreparedRequest request,
                        const Scheduler::Done& done,
                        std::unique_ptr<SearchWatcher> watcher) {
  if (stopped_by_) return done(*stopped_by_);
  if (is_draining_) return done(Draining());
  if (late_by_) return done(*late_by_);
  if (broken_by_) return done(*broken_by_);
  scheduler_.SetTime(Now());
  try {
    if (request.request.params.deadline_ms) MakeTimer();
    scheduler_.Submit(id, std::move(request), done, std::move(watcher));
  } catch (const std::bad_alloc&) {
    return done(too_little_memory);
  } catch (const boost::system::system_error& error) {
    return done(UntilThereIsMemory([&] {
      return MakeFieldError(
          absl::StatusCode::kResourceExhausted,
          "there is no timer for `deadline_ms`: ", error.what());
    }));
  }
  PostStep();
}

void EngineCore::Cancel(RequestId id) {
  UntilThereIsMemory([&] { scheduler_.Cancel(id, CancelledByCaller()); });
  PostStep();
}

void EngineCore::Drain(std::function<void()> drained) {
  is_draining_ = true;
  UntilThereIsMemory([&] { on_drained_.push_back(std::move(drained)); });
  PostStep();
}

void EngineCore::Stop(std::string_view why, std::function<void()> stopped) {
  EndRequests(why);
  UntilThereIsMemory([&] { on_idle_.push_back(std::move(stopped)); });
  PostStep();
}

void EngineCore::Pause(int64_t pause, RunningRequests running,
                       std::function<void(absl::Status)> paused) {
  if (pausing_) {
    return paused(UntilThereIsMemory(
        [] { return FailedPrecondition("the engine is paused already"); }));
  }
  if (stopped_by_) return paused(*stopped_by_);
  if (late_by_) return paused(*late_by_);
  pausing_ = {pause, running, std::move(paused)};
  scheduler_.SetAdmits(false);
  if (running == RunningRequests::kAbort) {
    UntilThereIsMemory([&] {
      scheduler_.CancelRunning(
          MakeError(absl::StatusCode::kUnavailable,
                    "the weights are replaced while the request runs"));
    });
    UntilThereIsMemory([&] { stops_.StopPresent(); });
  }
  PostStep();
}

void EngineCore::Resume(int64_t pause) {
  if (!pausing_ || pausing_->pause != pause) return;
  pausing_.reset();
  scheduler_.SetAdmits(true);
  PostStep();
}

void EngineCore::SetWeightsVersion(int64_t version) {
  broken_by_.reset();
  scheduler_.SetWeightsVersion(version);
}

void EngineCore::BreakWeights(absl::Status why) {
  broken_by_ = std::move(why);
  UntilThereIsMemory([&] { scheduler_.CancelAll(*broken_by_); });
}

bool EngineCore::ReachPause() {
  if (!pausing_) return false;
  if (pausing_->paused == nullptr) return true;
  if (pausing_->running != RunningRequests::kKeep &&
      scheduler_.runs_requests()) {
    return false;
  }
  std::exchange(pausing_->paused, nullptr)(absl::OkStatus());
  return true;
}

void EngineCore::FailPause(const absl::Status& why) {
  if (!pausing_ || pausing_->paused == nullptr) return;
  std::exchange(pausing_->paused, nullptr)(why);
  Resume(pausing_->pause);
}

EngineStats EngineCore::Stats() const {
  EngineStats stats = stats_;
  static_cast<SchedulerStats&>(stats) = scheduler_.stats();
  scheduler_.CountNow(&stats);
  return stats;
}

void EngineCore::EndRequests(std::string_view why) {
  if (stopped_by_) return;
  UntilThereIsMemory([&] { stopped_by_ = absl::CancelledError(ToAbsl(why)); });
  UntilThereIsMemory([&] { scheduler_.CancelAll(*stopped_by_); });
  Interrupt();
  timer_ = nullptr;
  FailPause(*stopped_by_);
}

void EngineCore::MakeTimer() {
  if (timer_ != nullptr) return;
  timer_ = strand_->MakeTimer([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self != nullptr) self->Post([](EngineCore& core) { core.Pump(); });
  });
}

void EngineCore::OnContextEnd() {
  EndRequests("the engine's context has ended");
  CallOnDrained();
  CallOnIdle();
  // May hold the last reference to this until the end of the block.
  const std::shared_ptr<EngineCore> self =
      std::exchange(while_in_flight_, nullptr);
}

void EngineCore::PostStep() {
  if (std::exchange(pump_posted_, true)) return;
  Post([](EngineCore& core) {
    core.pump_posted_ = false;
    core.Pump();
  });
}

void EngineCore::Pump() {
  KeepSpareMemory();
  if (scheduler_.first_deadline().has_value()) {
    scheduler_.SetTime(Now());
    scheduler_.ExpireDeadlines(std::chrono::steady_clock::now());
  }
  const bool may_start =
      !pausing_ || (pausing_->paused != nullptr &&
                    pausing_->running != RunningRequests::kKeep);
  while (may_start && std::ssize(in_flight_) < max_plans_in_flight_ &&
         StartStep()) {
    continue;
  }
  if (timer_ != nullptr) timer_->Set(scheduler_.first_deadline());
  if (!in_flight_.empty()) {
    if (late_by_) CallOnDrained();
    if (stopped_by_ && late_by_) CallOnIdle();
    return;
  }
  if (ReachPause()) return;
  if (!scheduler_.holds_requests()) CallOnDrained();
  executor_is_empty_ = num_lists_awaited_ == 0;
  if (stopped_by_) GiveExecutorBack();
  CallOnIdle();
}

bool EngineCore::StartStep() {
  if (plan_was_refused_) return false;
  Stopwatch watch;
  // Allocated before the plan, which must reach the executor once it exists.
  std::shared_ptr<StepInFlight> step;
  StepExecutor::Done done;
  UntilThereIsMemory([&] {
    step = std::make_shared<StepInFlight>();
    done = ReportTo(step);
    in_flight_.push_back(step);
  });
  scheduler_.SetTime(Now());
  StepPlan plan = scheduler_.Plan();
  if (plan.is_noop()) {
    in_flight_.pop_back();
    return false;
  }
  if (in_flight_.size() == 1) {
    step_watch_ = watch;
    WatchOldest();
  }
  executor_is_empty_ = false;
  if (unanswered_ != nullptr) unanswered_->Add();
  step->only_ended = plan.empty();
  if (!step->only_ended) {
    stats_.plan_time += watch.Elapsed();
    plan.stop = stops_.token();
  }
  plan_was_refused_ =
      !ExecuteOnce(steps_.get(), std::move(plan), std::move(done));
  return !plan_was_refused_;
}

StepExecutor::Done EngineCore::ReportTo(
    const std::shared_ptr<StepInFlight>& step) {
  return [strand = strand_, weak = weak_from_this(), step,
          unanswered = unanswered_](absl::StatusOr<StepResult> result) {
    strand->Post([weak, step, result = std::move(result)]() mutable {
      step->result = std::move(result);
      if (const auto self = weak.lock()) self->TakeResults();
    });
    if (unanswered != nullptr) unanswered->Remove();
  };
}

void EngineCore::TakeResults() {
  bool is_next = false;
  while (!in_flight_.empty() && in_flight_.front()->result.has_value()) {
    const std::shared_ptr<StepInFlight> step = std::move(in_flight_.front());
    in_flight_.pop_front();
    is_next = true;
    late_by_.reset();
    Stopwatch watch;
    scheduler_.SetTime(Now());
    scheduler_.Advance(*std::move(step->result));
    const absl::Duration step_time = step_watch_.Lap();
    if (step->only_ended) continue;
    stats_.advance_time += watch.Elapsed();
    stats_.step_time += step_time;
    const SchedulerStats& done = scheduler_.stats();
    stats_.hand_over_time =
        std::max(stats_.hand_over_time,
                 stats_.step_time - done.forward_time - done.select_time -
                     done.draft_time - stats_.plan_time - stats_.advance_time);
  }
  std::shared_ptr<EngineCore> self;  // may hold the last reference to this
  if (in_flight_.empty()) {
    plan_was_refused_ = false;
    if (watchdog_ != nullptr) watchdog_->End();
    self = std::exchange(while_in_flight_, nullptr);
    ReleaseContext();
  } else if (is_next) {
    WatchOldest();
  }
  Pump();
}

void EngineCore::WatchOldest() {
  if (while_in_flight_ == nullptr) {
    while_in_flight_ = shared_from_this();
    HoldContext();
  }
  if (watchdog_ != nullptr) watchdog_->Begin();
}

void EngineCore::OnLate(int64_t step) {
  if (!watchdog_->IsOldest(step)) return;
  absl::Status ends;
  UntilThereIsMemory([&] {
    const std::string within = absl::FormatDuration(watchdog_->timeout());
    ends = MakeError(absl::StatusCode::kUnavailable,
                     "the step did not answer within ", within);
    late_by_ = MakeError(absl::StatusCode::kUnavailable,
                         "a step has not answered within ", within,
                         "; requests are refused until it does");
  });
  UntilThereIsMemory([&] { scheduler_.CancelAll(ends); });
  UntilThereIsMemory([&] { stops_.StopPresent(); });
  FailPause(*late_by_);
  if (timer_ != nullptr) timer_->Set(scheduler_.first_deadline());
  // No request waits for the step any more.
  const std::shared_ptr<EngineCore> self =
      std::exchange(while_in_flight_, nullptr);
  ReleaseContext();
  CallOnDrained();
  if (stopped_by_) CallOnIdle();
}

void EngineCore::MakeLists(ListWork work) {
  const RequestId request = work.request;
  const std::weak_ptr<const void> is_awaited = work.is_awaited;
  ++num_lists_awaited_;
  HoldContext();
  if (list_maker_.Make(std::move(work))) return;
  // Without a thread the strand makes them.
  Post([request, is_awaited](EngineCore& core) {
    core.OnListed(request, is_awaited);
  });
}

void EngineCore::OnListed(RequestId request,
                          const std::weak_ptr<const void>& is_awaited) {
  --num_lists_awaited_;
  scheduler_.OnListed(request, is_awaited);
  ReleaseContext();
  Pump();
}

void EngineCore::HoldContext() {
  UntilThereIsMemory([&] { strand_->HoldContext(); });
}

void EngineCore::ReleaseContext() {
  if (while_in_flight_ == nullptr && num_lists_awaited_ == 0) {
    strand_->ReleaseContext();
  }
}

void EngineCore::CallOnDrained() {
  for (const auto& callback : std::exchange(on_drained_, {})) callback();
}

void EngineCore::CallOnIdle() {
  for (const auto& callback : std::exchange(on_idle_, {})) callback();
}

void EngineCore::GiveExecutorBack() {
  if (std::exchange(has_executor_, false)) steps_->sole_use().GiveBack();
}

}  // namespace espalier

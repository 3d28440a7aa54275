#include "batcher/engine_core.h"

#include <new>

#include "base/memory.h"
#include "base/status.h"
#include "batcher/answer.h"
#include "batcher/execute_once.h"

namespace espalier {
namespace {

absl::Status TooLittleMemoryToTake() {
  absl::Status status;
  UntilThereIsMemory([&] {
    status = ResourceExhausted("not enough memory to take the request");
  });
  return status;
}

}  // namespace

std::shared_ptr<EngineCore> EngineCore::Create(
    const boost::asio::any_io_executor& executor,
    std::shared_ptr<StepExecutor> steps, const EngineOptions& options) {
  const auto core = std::make_shared<EngineCore>(std::move(steps), options);
  core->strand_ =
      Mailbox::Create(executor, [weak = std::weak_ptr<EngineCore>(core)] {
        if (const auto self = weak.lock()) self->OnContextEnd();
      });
  return core;
}

EngineCore::EngineCore(std::shared_ptr<StepExecutor> steps,
                       const EngineOptions& options)
    : description(steps->description()),
      tokenizer(options.tokenizer),
      max_plans_in_flight_(steps->max_plans_in_flight()),
      steps_(std::move(steps)),
      scheduler_(description, options.scheduler) {}

EngineCore::~EngineCore() {
  if (executor_is_empty_) GiveExecutorBack();
}

bool EngineCore::TakeExecutor() {
  return has_executor_ = steps_->sole_use().Take();
}

void EngineCore::Submit(RequestId id, PreparedRequest request,
                        const Scheduler::Done& done,
                        std::unique_ptr<SearchWatcher> watcher) {
  if (stopped_by_) return done(*stopped_by_);
  try {
    scheduler_.Submit(id, std::move(request), done, std::move(watcher));
  } catch (const std::bad_alloc&) {
    return done(TooLittleMemoryToTake());
  }
  PostStep();
}

void EngineCore::Cancel(RequestId id) {
  UntilThereIsMemory([&] { scheduler_.Cancel(id, CancelledByCaller()); });
  PostStep();
}

void EngineCore::Stop(std::string_view why, std::function<void()> stopped) {
  EndRequests(why);
  UntilThereIsMemory([&] { on_idle_.push_back(std::move(stopped)); });
  PostStep();
}

EngineFigures EngineCore::Figures() const {
  EngineFigures figures = figures_;
  figures.scheduler = scheduler_.figures();
  figures.num_waiting = scheduler_.num_waiting();
  figures.num_running = scheduler_.num_running();
  figures.num_away = scheduler_.num_away();
  figures.num_pages_held = scheduler_.pool().num_in_use();
  figures.num_pages_idle = scheduler_.pool().num_idle();
  return figures;
}

void EngineCore::EndRequests(std::string_view why) {
  if (stopped_by_) return;
  UntilThereIsMemory([&] { stopped_by_ = absl::CancelledError(ToAbsl(why)); });
  UntilThereIsMemory([&] { scheduler_.CancelAll(*stopped_by_); });
  Interrupt();
}

void EngineCore::OnContextEnd() {
  EndRequests("the engine's context has ended");
  CallOnIdle();
  // The last of this, at the end of the block.
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
  while (std::ssize(in_flight_) < max_plans_in_flight_ && StartStep()) {
    continue;
  }
  if (!in_flight_.empty()) return;
  executor_is_empty_ = true;
  if (stopped_by_) GiveExecutorBack();
  CallOnIdle();
}

bool EngineCore::StartStep() {
  if (plan_was_refused_) return false;
  Stopwatch watch;
  // Ready before there is a plan, which must then be given to the executor.
  std::shared_ptr<StepInFlight> step;
  StepExecutor::Done done;
  UntilThereIsMemory([&] {
    step = std::make_shared<StepInFlight>();
    done = ReportTo(step);
    in_flight_.push_back(step);
  });
  StepPlan plan = scheduler_.Plan();
  if (plan.is_noop()) {
    in_flight_.pop_back();
    return false;
  }
  if (in_flight_.size() == 1) {
    step_watch_ = watch;
    while_in_flight_ = shared_from_this();
    UntilThereIsMemory([&] { strand_->HoldContext(); });
  }
  executor_is_empty_ = false;
  step->only_ended = plan.empty();
  if (!step->only_ended) {
    figures_.plan_time += watch.Elapsed();
    plan.stop = stop_.get_token();
  }
  plan_was_refused_ =
      !ExecuteOnce(steps_.get(), std::move(plan), std::move(done));
  return !plan_was_refused_;
}

StepExecutor::Done EngineCore::ReportTo(
    const std::shared_ptr<StepInFlight>& step) {
  return [strand = strand_, weak = weak_from_this(),
          step](absl::StatusOr<StepResult> result) {
    strand->Post([weak, step, result = std::move(result)]() mutable {
      step->result = std::move(result);
      if (const auto self = weak.lock()) self->TakeResults();
    });
  };
}

void EngineCore::TakeResults() {
  while (!in_flight_.empty() && in_flight_.front()->result.has_value()) {
    const std::shared_ptr<StepInFlight> step = std::move(in_flight_.front());
    in_flight_.pop_front();
    Stopwatch watch;
    scheduler_.Advance(*std::move(step->result));
    const absl::Duration step_time = step_watch_.Lap();
    if (step->only_ended) continue;
    figures_.advance_time += watch.Elapsed();
    figures_.step_time += step_time;
  }
  std::shared_ptr<EngineCore> self;  // the last of this, maybe
  if (in_flight_.empty()) {
    plan_was_refused_ = false;
    self = std::exchange(while_in_flight_, nullptr);
    strand_->ReleaseContext();
  }
  Pump();
}

void EngineCore::CallOnIdle() {
  for (const auto& callback : std::exchange(on_idle_, {})) callback();
}

void EngineCore::GiveExecutorBack() {
  if (std::exchange(has_executor_, false)) steps_->sole_use().GiveBack();
}

}  // namespace espalier

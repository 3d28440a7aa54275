#include "batcher/engine.h"

#include <atomic>
#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>
#include <deque>
#include <functional>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/status.h"
#include "base/stopwatch.h"
#include "batcher/answer.h"
#include "batcher/event_queue.h"
#include "batcher/execute_once.h"
#include "batcher/mailbox.h"
#include "batcher/scheduler.h"
#include "batcher/stream_writer.h"
#include "beam/finish_rule.h"
#include "beam/prepared_request.h"
#include "exec_request/step_executor.h"
#include "text/tokenizer.h"

namespace espalier {

namespace asio = boost::asio;

// All state, kept alive by whoever still has business with it: the engine,
// work on its way to the strand, the steps in flight. What an executor calls
// back does not keep it alive: so no executor ends on a thread of its own.
class Engine::Core : public std::enable_shared_from_this<Engine::Core> {
 public:
  static std::shared_ptr<Core> Create(const asio::any_io_executor& executor,
                                      std::shared_ptr<StepExecutor> steps,
                                      const EngineOptions& options) {
    const auto core = std::make_shared<Core>(std::move(steps), options);
    core->strand_ =
        Mailbox::Create(executor, [weak = std::weak_ptr<Core>(core)] {
          if (const auto self = weak.lock()) self->OnContextEnd();
        });
    return core;
  }

  Core(std::shared_ptr<StepExecutor> steps, const EngineOptions& options)
      : description(steps->description()),
        tokenizer(options.tokenizer),
        max_plans_in_flight_(steps->max_plans_in_flight()),
        steps_(std::move(steps)),
        scheduler_(description, options.scheduler) {}
  ~Core() {
    if (executor_knows_nobody_) GiveExecutorBack();
  }

  // Once, before all else.
  bool TakeExecutor() { return has_executor_ = steps_->sole_use().Take(); }

  // Calls work(core) on the strand, from any thread; destroys it instead if the
  // context has ended.
  template <typename Work>
  void Post(Work work) noexcept {
    strand_->Post([self = shared_from_this(),
                   work = std::move(work)]() mutable { work(*self); });
  }

  RequestId NextId() { return RequestId{next_id_++}; }

  // Whatever runs is given up soon, for nobody waits for it; from any thread.
  void Interrupt() { stop_.request_stop(); }

  // The rest runs on the strand, and does not throw: what has no memory for
  // its work ends the request that it is for, and what tells so waits for some.

  void Submit(RequestId id, PreparedRequest request,
              const Scheduler::Done& done,
              std::unique_ptr<SearchWatcher> watcher = nullptr) {
    if (stopped_by_) return done(*stopped_by_);
    try {
      scheduler_.Submit(id, std::move(request), done, std::move(watcher));
    } catch (const std::bad_alloc&) {
      return done(OutOfMemory());
    }
    PumpSoon();
  }

  void Cancel(RequestId id) {
    UntilThereIsMemory([&] { scheduler_.Cancel(id, CancelledByCaller()); });
    PumpSoon();
  }

  // `stopped` is called when nothing runs any more. It was made elsewhere: who
  // makes one allocates.
  void Stop(std::string_view why, std::function<void()> stopped) {
    EndRequests(why);
    UntilThereIsMemory([&] { on_idle_.push_back(std::move(stopped)); });
    PumpSoon();
  }

  EngineFigures Figures() const {
    EngineFigures figures = figures_;
    figures.scheduler = scheduler_.figures();
    figures.num_waiting = scheduler_.num_waiting();
    figures.num_running = scheduler_.num_running();
    figures.num_pages_held = scheduler_.pool().num_held();
    return figures;
  }

  // Constant after construction.
  const ModelDescription description;
  const std::shared_ptr<const Tokenizer> tokenizer;  // or null

 private:
  // A plan that the executor was given.
  struct StepInFlight {
    bool only_ended = false;  // nobody runs in it
    std::optional<absl::StatusOr<StepResult>> result = {};
  };

  static absl::Status OutOfMemory() {
    absl::Status status;
    UntilThereIsMemory([&] {
      status = ResourceExhausted("not enough memory to take the request");
    });
    return status;
  }

  // For good, with the first reason.
  void EndRequests(std::string_view why) {
    if (stopped_by_) return;
    UntilThereIsMemory(
        [&] { stopped_by_ = absl::CancelledError(ToAbsl(why)); });
    UntilThereIsMemory([&] { scheduler_.CancelAll(*stopped_by_); });
    Interrupt();
  }

  // Nobody runs on the strand any more: the context's owner is here alone.
  // Steps in flight report to nobody.
  void OnContextEnd() {
    EndRequests("the engine's context has ended");
    TellIdle();
    // The last of this, at the end of the block.
    const std::shared_ptr<Core> self = std::exchange(while_in_flight_, nullptr);
  }

  // Plans after the work that is already queued, so that requests that arrive
  // together start together.
  void PumpSoon() {
    if (std::exchange(pump_posted_, true)) return;
    Post([](Core& core) {
      core.pump_posted_ = false;
      core.Pump();
    });
  }

  void Pump() {
    while (std::ssize(in_flight_) < max_plans_in_flight_ && StartStep()) {
      continue;
    }
    if (!in_flight_.empty()) return;
    executor_knows_nobody_ = true;
    if (stopped_by_) GiveExecutorBack();
    TellIdle();
  }

  // False if there is nothing to run, or nothing may.
  bool StartStep() {
    if (plan_was_refused_) return false;
    Stopwatch watch;
    // Ready before there is a plan, which must then be given to somebody.
    std::shared_ptr<StepInFlight> step;
    StepExecutor::Done done;
    UntilThereIsMemory([&] {
      step = std::make_shared<StepInFlight>();
      done = ReportTo(step);
      in_flight_.push_back(step);
    });
    StepPlan plan = scheduler_.Plan();
    if (plan.says_nothing()) {
      in_flight_.pop_back();
      return false;
    }
    if (in_flight_.size() == 1) {
      step_watch_ = watch;
      while_in_flight_ = shared_from_this();
      UntilThereIsMemory([&] { strand_->HoldContext(); });
    }
    executor_knows_nobody_ = false;
    step->only_ended = plan.empty();
    if (!step->only_ended) {
      figures_.plan_time += watch.Elapsed();
      plan.stop = stop_.get_token();
    }
    plan_was_refused_ =
        !ExecuteOnce(steps_.get(), std::move(plan), std::move(done));
    return !plan_was_refused_;
  }

  // What takes a step's result to the strand, from any thread.
  StepExecutor::Done ReportTo(const std::shared_ptr<StepInFlight>& step) {
    return [strand = strand_, weak = weak_from_this(),
            step](absl::StatusOr<StepResult> result) {
      strand->Post([weak, step, result = std::move(result)]() mutable {
        step->result = std::move(result);
        if (const auto self = weak.lock()) self->TakeResults();
      });
    };
  }

  // In the order of the steps: one that could not be started reports before
  // those that still run.
  void TakeResults() {
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
    std::shared_ptr<Core> self;  // the last of this, maybe
    if (in_flight_.empty()) {
      plan_was_refused_ = false;
      self = std::exchange(while_in_flight_, nullptr);
      strand_->ReleaseContext();
    }
    Pump();
  }

  void TellIdle() {
    for (const auto& callback : std::exchange(on_idle_, {})) callback();
  }

  void GiveExecutorBack() {
    if (std::exchange(has_executor_, false)) steps_->sole_use().GiveBack();
  }

  std::atomic<int64_t> next_id_{0};
  std::stop_source stop_;  // of the steps in flight
  const int max_plans_in_flight_;
  std::shared_ptr<Mailbox> strand_;  // constant after Create

  // Touched on the strand.
  const std::shared_ptr<StepExecutor> steps_;
  bool has_executor_ = false;          // for itself alone
  bool executor_knows_nobody_ = true;  // it was told of everybody's end
  Scheduler scheduler_;
  std::deque<std::shared_ptr<StepInFlight>> in_flight_;  // oldest first
  std::shared_ptr<Core> while_in_flight_;                // this, or null
  // The last one: nothing may go on from it.
  bool plan_was_refused_ = false;
  bool pump_posted_ = false;
  std::optional<absl::Status> stopped_by_;  // what requests get from then on
  std::vector<std::function<void()>> on_idle_;
  Stopwatch step_watch_;  // since the oldest step in flight began to be so
  EngineFigures figures_;
};

namespace {

// What ends the request, from any thread.
template <typename Core>
std::function<void()> Canceller(const std::shared_ptr<Core>& core,
                                RequestId id) {
  return [core, id] {
    core->Post([id](Core& on_strand) { on_strand.Cancel(id); });
  };
}

template <typename Core>
absl::Status Validate(const Core& core, Request* request) {
  RETURN_IF_ERROR(ValidateRequest(core.description, request));
  return CheckStops(request->params, core.tokenizer.get());
}

absl::Status TooLittleMemory() {
  return UntilThereIsMemory([] {
    return absl::ResourceExhaustedError(
        "not enough memory to prepare the request");
  });
}

// Makes the request ready to be submitted: all the work on it that has not to
// be done on the strand. Throws std::bad_alloc.
// Errors: what is wrong with it; kFailedPrecondition if cancelling it would not
// be safe; kCancelled if its caller was cancelled before, and has asked not to
// throw then.
template <typename Core>
asio::awaitable<absl::StatusOr<PreparedRequest>> Prepare(
    std::shared_ptr<Core> core, Request request) {
  const absl::Status valid = Validate(*core, &request);
  if (!valid.ok()) co_return valid;
  const absl::Status can_wait = co_await CheckCanWait();
  if (!can_wait.ok()) co_return can_wait;
  GiveSeed(&request);
  co_return PreparedRequest(std::move(request), core->tokenizer);
}

// Parameters are values: the coroutine may outlive the engine.
template <typename Core>
asio::awaitable<absl::StatusOr<Result>> RunRequest(std::shared_ptr<Core> core,
                                                   Request request) {
  try {
    absl::StatusOr<PreparedRequest> prepared =
        co_await Prepare(core, std::move(request));
    if (!prepared.ok()) co_return prepared.status();

    using Value = absl::StatusOr<Result>;
    const auto answer = std::make_shared<Answer<Value>>();
    const RequestId id = core->NextId();
    CancelUnlessAnswered guard(Canceller(core, id));
    core->Post([id, send = SendTo<Value>(answer, ContextEnded()),
                prepared = *std::move(prepared)](Core& on_strand) mutable {
      on_strand.Submit(id, std::move(prepared), send);
    });
    std::optional<Value> result = co_await Answer<Value>::Await(answer);
    if (!result.has_value()) co_return CancelledByCaller();
    guard.Answered();
    co_return *std::move(result);
  } catch (const std::bad_alloc&) {
    co_return TooLittleMemory();
  }
}

Scheduler::Done EndOf(const std::shared_ptr<EventQueue>& queue) {
  return
      [queue](absl::StatusOr<Result> result) { queue->End(std::move(result)); };
}

// A stream of a request that the strand has accepted.
template <typename Core>
ResultStream StreamOf(const std::shared_ptr<Core>& core, RequestId id,
                      const std::shared_ptr<EventQueue>& queue) {
  const auto read = [core, queue](int64_t num_received,
                                  EventQueue::Reader reader) {
    core->Post(
        [queue, num_received, reader = std::move(reader)](Core&) mutable {
          queue->Read(num_received, std::move(reader));
        });
  };
  return ResultStream({.read = read, .cancel = Canceller(core, id)});
}

template <typename Core>
asio::awaitable<absl::StatusOr<ResultStream>> OpenStream(
    std::shared_ptr<Core> core, Request request, StreamOptions options) {
  try {
    absl::StatusOr<PreparedRequest> prepared =
        co_await Prepare(core, std::move(request));
    if (!prepared.ok()) co_return prepared.status();

    const auto answer = std::make_shared<Answer<absl::Status>>();
    const auto queue = std::make_shared<EventQueue>();
    const RequestId id = core->NextId();
    std::unique_ptr<SearchWatcher> writer =
        MakeStreamWriter(*prepared, options, queue);
    CancelUnlessAnswered guard(Canceller(core, id));
    core->Post([id, queue, end = EndOf(queue),
                send = SendTo<absl::Status>(answer, ContextEnded()),
                prepared = *std::move(prepared),
                writer = std::move(writer)](Core& on_strand) mutable {
      on_strand.Submit(id, std::move(prepared), end, std::move(writer));
      send(queue->error());
    });
    std::optional<absl::Status> accepted =
        co_await Answer<absl::Status>::Await(answer);
    if (!accepted.has_value()) co_return CancelledByCaller();
    ResultStream stream = StreamOf(core, id, queue);
    guard.Answered();
    if (!accepted->ok()) co_return *std::move(accepted);
    co_return std::move(stream);
  } catch (const std::bad_alloc&) {
    co_return TooLittleMemory();
  }
}

[[noreturn]] void ThrowCancelled() {
  throw boost::system::system_error(asio::error::operation_aborted);
}

template <typename Core>
asio::awaitable<void> RunShutdown(std::shared_ptr<Core> core, std::string why) {
  const auto stopped = std::make_shared<Answer<bool>>();
  std::function<void()> tell = [send = SendTo<bool>(stopped, true)] {
    send(true);
  };
  core->Post(
      [why = std::move(why), tell = std::move(tell)](Core& on_strand) mutable {
        on_strand.Stop(why, std::move(tell));
      });
  const std::optional<bool> answer = co_await Answer<bool>::Await(stopped);
  if (!answer.has_value()) ThrowCancelled();
}

template <typename Core>
asio::awaitable<EngineFigures> ReadFigures(std::shared_ptr<Core> core) {
  using Value = EngineFigures;
  const auto answer = std::make_shared<Answer<Value>>();
  core->Post([send = SendTo<Value>(answer, Value())](Core& on_strand) {
    send(on_strand.Figures());
  });
  std::optional<Value> figures = co_await Answer<Value>::Await(answer);
  if (!figures.has_value()) ThrowCancelled();
  co_return *std::move(figures);
}

}  // namespace

absl::StatusOr<Engine> Engine::Create(asio::any_io_executor executor,
                                      std::shared_ptr<StepExecutor> steps,
                                      const EngineOptions& options) {
  if (!executor) return InvalidArgument("executor must not be empty");
  if (steps == nullptr) return InvalidArgument("steps must not be null");
  RETURN_IF_ERROR(CheckOptions(options.scheduler));
  RETURN_IF_ERROR(CheckDescription(steps->description()));
  if (steps->max_plans_in_flight() < 1) {
    return InvalidArgument(
        "max_plans_in_flight() of steps must be at least 1, got ",
        steps->max_plans_in_flight());
  }
  try {
    std::shared_ptr<Core> core = Core::Create(executor, steps, options);
    if (core->TakeExecutor()) return Engine(std::move(core));
    return FailedPrecondition(
        "steps serve another engine, or one left them in the middle of "
        "requests; await its Shutdown() first");
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("not enough memory for an engine with ",
                             steps->description().num_pages, " pages");
  }
}

Engine::Engine(std::shared_ptr<Core> core) : core_(std::move(core)) {}

Engine::~Engine() { EndRequests(); }

Engine& Engine::operator=(Engine&& other) {
  if (this == &other) return *this;
  EndRequests();
  core_ = std::move(other.core_);
  return *this;
}

void Engine::EndRequests() {
  if (core_ == nullptr) return;
  // In this order: requests are told of the shutdown, not of a step given up.
  core_->Post([](Core& core) { core.Stop(kShutDown, [] {}); });
  core_->Interrupt();
}

asio::awaitable<absl::StatusOr<Result>> Engine::Generate(Request request) {
  return RunRequest(core_, std::move(request));
}

asio::awaitable<absl::StatusOr<ResultStream>> Engine::Stream(
    Request request, StreamOptions options) {
  return OpenStream(core_, std::move(request), options);
}

asio::awaitable<void> Engine::Shutdown(std::string_view why) {
  return RunShutdown(core_, std::string(why));
}

asio::awaitable<EngineFigures> Engine::Figures() { return ReadFigures(core_); }

}  // namespace espalier

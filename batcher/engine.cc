#include "batcher/engine.h"

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/experimental/concurrent_channel.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/stopwatch.h"

namespace espalier {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// Carries one answer from the strand to a waiting coroutine.
template <typename T>
using AnswerChannel =
    asio::experimental::concurrent_channel<void(error_code, T)>;

// Sends to a channel that is still there. Only the coroutine owns its channel,
// which must not outlive the coroutine's context.
template <typename T>
std::function<void(T)> SendTo(std::weak_ptr<AnswerChannel<T>> channel) {
  return [channel = std::move(channel)](T value) {
    if (const auto open = channel.lock()) {
      open->try_send(error_code(), std::move(value));
    }
  };
}

absl::Status ShutDownError() {
  return MakeError(absl::StatusCode::kCancelled, "the engine is shut down");
}

absl::Status CancelledByCaller() {
  return MakeError(absl::StatusCode::kCancelled, "cancelled by its caller");
}

}  // namespace

// All state, kept alive by whoever still has business with it: the engine,
// handlers on their way to the strand, the step in flight.
class Engine::Core : public std::enable_shared_from_this<Engine::Core> {
 public:
  using Strand = asio::strand<asio::any_io_executor>;

  Core(asio::any_io_executor executor, StepExecutor* steps,
       const EngineOptions& options)
      : description(steps->description()),
        strand(asio::make_strand(std::move(executor))),
        max_plans_in_flight_(steps->max_plans_in_flight()),
        steps_(steps),
        scheduler_(description, options.scheduler) {}

  RequestId NextId() { return RequestId{next_id_++}; }

  // The rest runs on the strand.

  void Submit(RequestId id, Request request, Scheduler::Done done) {
    if (stopping_) return done(ShutDownError());
    scheduler_.Submit(id, std::move(request), std::move(done));
    PumpSoon();
  }

  void Cancel(RequestId id) {
    scheduler_.Cancel(id, CancelledByCaller());
    PumpSoon();
  }

  // `stopped` is called when nothing runs any more.
  void Stop(std::function<void()> stopped) {
    stopping_ = true;
    scheduler_.CancelAll(ShutDownError());
    on_idle_.push_back(std::move(stopped));
    PumpSoon();
  }

  // The step executor may be gone after this.
  void Detach() {
    detached_ = true;
    Stop([] {});
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
  const Strand strand;

 private:
  // Plans after the handlers that are already queued, so that requests that
  // arrive together start together.
  void PumpSoon() {
    if (std::exchange(pump_posted_, true)) return;
    asio::post(strand, [self = shared_from_this()] {
      self->pump_posted_ = false;
      self->Pump();
    });
  }

  void Pump() {
    while (num_in_flight_ < max_plans_in_flight_ && StartStep()) continue;
    if (num_in_flight_ == 0) Idle();
  }

  // False if there is nothing to run.
  bool StartStep() {
    if (detached_) return false;
    Stopwatch watch;
    StepPlan plan = scheduler_.Plan();
    if (plan.says_nothing()) return false;
    if (num_in_flight_++ == 0) step_watch_ = watch;
    const bool only_ended = plan.empty();
    if (!only_ended) figures_.plan_time += watch.Elapsed();
    // The guard keeps the context running until the step has reported.
    steps_->Execute(
        std::move(plan),
        [self = shared_from_this(), only_ended,
         guard = asio::make_work_guard(strand.get_inner_executor())](
            absl::StatusOr<StepResult> result) {
          asio::post(self->strand,
                     [self, only_ended, result = std::move(result)]() mutable {
                       self->OnStep(std::move(result), only_ended);
                     });
        });
    return true;
  }

  void OnStep(absl::StatusOr<StepResult> result, bool only_ended) {
    --num_in_flight_;
    Stopwatch watch;
    scheduler_.Advance(std::move(result));
    const absl::Duration step_time = step_watch_.Lap();
    if (!only_ended) {
      figures_.advance_time += watch.Elapsed();
      figures_.step_time += step_time;
    }
    Pump();
  }

  void Idle() {
    for (const auto& callback : std::exchange(on_idle_, {})) callback();
  }

  std::atomic<int64_t> next_id_{0};
  const int max_plans_in_flight_;

  // Touched on the strand.
  StepExecutor* const steps_;
  Scheduler scheduler_;
  int num_in_flight_ = 0;
  bool pump_posted_ = false;
  bool stopping_ = false;
  bool detached_ = false;
  std::vector<std::function<void()>> on_idle_;
  Stopwatch step_watch_;  // since the oldest step in flight began to be so
  EngineFigures figures_;
};

namespace {

// Tells the engine when a coroutine stops waiting without an answer, also by
// being destroyed.
template <typename Core>
class CancelUnlessAnswered {
 public:
  CancelUnlessAnswered(std::shared_ptr<Core> core, RequestId id)
      : core_(std::move(core)), id_(id) {}
  ~CancelUnlessAnswered() {
    if (core_ == nullptr) return;
    asio::post(core_->strand, [core = core_, id = id_] { core->Cancel(id); });
  }
  void Answered() { core_ = nullptr; }

 private:
  std::shared_ptr<Core> core_;
  const RequestId id_;
};

// Parameters are values: the coroutine may outlive the engine.
template <typename Core>
asio::awaitable<absl::StatusOr<Result>> RunRequest(std::shared_ptr<Core> core,
                                                   Request request) {
  const absl::Status valid = ValidateRequest(core->description, &request);
  if (!valid.ok()) co_return valid;
  GenerationParams& params = request.params;
  if (DrawsAtRandom(params) && !params.seed) params.seed = DrawSeed();
  const asio::cancellation_state state =
      co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none) {
    co_return CancelledByCaller();  // and asked not to throw
  }

  using Value = absl::StatusOr<Result>;
  const auto executor = co_await asio::this_coro::executor;
  const auto answer = std::make_shared<AnswerChannel<Value>>(executor, 1);
  const RequestId id = core->NextId();
  asio::post(core->strand, [core, id, send = SendTo<Value>(answer),
                            request = std::move(request)]() mutable {
    core->Submit(id, std::move(request), std::move(send));
  });

  CancelUnlessAnswered<Core> guard(core, id);
  auto [error, result] =
      co_await answer->async_receive(asio::as_tuple(asio::use_awaitable));
  if (error) co_return CancelledByCaller();
  guard.Answered();
  co_return std::move(result);
}

template <typename Core>
asio::awaitable<void> RunShutdown(std::shared_ptr<Core> core) {
  const auto executor = co_await asio::this_coro::executor;
  const auto stopped = std::make_shared<AnswerChannel<bool>>(executor, 1);
  asio::post(core->strand, [core, send = SendTo<bool>(stopped)] {
    core->Stop([send] { send(true); });
  });
  co_await stopped->async_receive(asio::use_awaitable);
}

template <typename Core>
asio::awaitable<EngineFigures> ReadFigures(std::shared_ptr<Core> core) {
  using Value = EngineFigures;
  const auto executor = co_await asio::this_coro::executor;
  const auto answer = std::make_shared<AnswerChannel<Value>>(executor, 1);
  asio::post(core->strand,
             [core, send = SendTo<Value>(answer)] { send(core->Figures()); });
  co_return co_await answer->async_receive(asio::use_awaitable);
}

}  // namespace

Engine::Engine(asio::any_io_executor executor, StepExecutor* steps,
               const EngineOptions& options)
    : core_(std::make_shared<Core>(std::move(executor), steps, options)) {}

Engine::~Engine() {
  asio::post(core_->strand, [core = core_] { core->Detach(); });
}

asio::awaitable<absl::StatusOr<Result>> Engine::Generate(Request request) {
  return RunRequest(core_, std::move(request));
}

asio::awaitable<void> Engine::Shutdown() { return RunShutdown(core_); }

asio::awaitable<EngineFigures> Engine::Figures() { return ReadFigures(core_); }

}  // namespace espalier

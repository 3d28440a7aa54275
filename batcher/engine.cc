#include "batcher/engine.h"

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/stopwatch.h"
#include "batcher/answer_channel.h"
#include "batcher/event_queue.h"
#include "batcher/execute_once.h"
#include "batcher/stream_writer.h"
#include "beam/finish_rule.h"
#include "beam/prepared_request.h"

namespace espalier {

namespace asio = boost::asio;

// All state, kept alive by whoever still has business with it: the engine,
// handlers on their way to the strand, the steps in flight.
class Engine::Core : public std::enable_shared_from_this<Engine::Core> {
 public:
  using Strand = asio::strand<asio::any_io_executor>;

  Core(asio::any_io_executor executor, std::shared_ptr<StepExecutor> steps,
       const EngineOptions& options)
      : description(steps->description()),
        tokenizer(options.tokenizer),
        strand(asio::make_strand(std::move(executor))),
        max_plans_in_flight_(steps->max_plans_in_flight()),
        steps_(std::move(steps)),
        scheduler_(description, options.scheduler) {}

  RequestId NextId() { return RequestId{next_id_++}; }

  // The rest runs on the strand.

  void Submit(RequestId id, PreparedRequest request, Scheduler::Done done) {
    if (stopped_by_) return done(*stopped_by_);
    scheduler_.Submit(id, std::move(request), std::move(done));
    PumpSoon();
  }

  // Its events go into `queue`, by `writer`.
  // Errors: why it was refused.
  absl::Status Stream(RequestId id, PreparedRequest request,
                      std::unique_ptr<SearchWatcher> writer,
                      const std::shared_ptr<EventQueue>& queue) {
    if (stopped_by_) return *stopped_by_;
    scheduler_.Submit(
        id, std::move(request),
        [queue](absl::StatusOr<Result> result) {
          queue->End(std::move(result));
        },
        std::move(writer));
    PumpSoon();
    return queue->error();
  }

  void Cancel(RequestId id) {
    scheduler_.Cancel(id, CancelledByCaller());
    PumpSoon();
  }

  // `stopped` is called when nothing runs any more.
  void Stop(const std::string& why, std::function<void()> stopped) {
    if (!stopped_by_) {
      stopped_by_ = MakeError(absl::StatusCode::kCancelled, why);
      scheduler_.CancelAll(*stopped_by_);
    }
    on_idle_.push_back(std::move(stopped));
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
    while (std::ssize(in_flight_) < max_plans_in_flight_ && StartStep()) {
      continue;
    }
    if (in_flight_.empty()) Idle();
  }

  // False if there is nothing to run, or nothing may.
  bool StartStep() {
    if (plan_was_refused_) return false;
    Stopwatch watch;
    StepPlan plan = scheduler_.Plan();
    if (plan.says_nothing()) return false;
    if (in_flight_.empty()) step_watch_ = watch;
    const bool only_ended = plan.empty();
    if (!only_ended) figures_.plan_time += watch.Elapsed();
    const auto step = std::make_shared<StepInFlight>();
    step->only_ended = only_ended;
    in_flight_.push_back(step);
    // The guard keeps the context running until the step has reported.
    plan_was_refused_ = !ExecuteOnce(
        steps_.get(), std::move(plan),
        [guard = asio::make_work_guard(strand.get_inner_executor()),
         self = shared_from_this(), step](absl::StatusOr<StepResult> result) {
          asio::post(self->strand,
                     [self, step, result = std::move(result)]() mutable {
                       step->result = std::move(result);
                       self->TakeResults();
                     });
        });
    return !plan_was_refused_;
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
    if (in_flight_.empty()) plan_was_refused_ = false;
    Pump();
  }

  void Idle() {
    for (const auto& callback : std::exchange(on_idle_, {})) callback();
  }

  // A plan that the executor was given.
  struct StepInFlight {
    bool only_ended = false;  // nobody runs in it
    std::optional<absl::StatusOr<StepResult>> result = {};
  };

  std::atomic<int64_t> next_id_{0};
  const int max_plans_in_flight_;

  // Touched on the strand.
  const std::shared_ptr<StepExecutor> steps_;
  Scheduler scheduler_;
  std::deque<std::shared_ptr<StepInFlight>> in_flight_;  // oldest first
  // The last one: nothing may go on from it.
  bool plan_was_refused_ = false;
  bool pump_posted_ = false;
  std::optional<absl::Status> stopped_by_;  // what requests get from then on
  std::vector<std::function<void()>> on_idle_;
  Stopwatch step_watch_;  // since the oldest step in flight began to be so
  EngineFigures figures_;
};

namespace {

// Ends the request, from any thread.
template <typename Core>
std::function<void()> Canceller(std::shared_ptr<Core> core, RequestId id) {
  return [core = std::move(core), id] {
    asio::post(core->strand, [core, id] { core->Cancel(id); });
  };
}

template <typename Core>
absl::Status Validate(const Core& core, Request* request) {
  RETURN_IF_ERROR(ValidateRequest(core.description, request));
  return CheckStops(request->params, core.tokenizer.get());
}

// Makes the request ready to be submitted: all the work on it that has not to
// be done on the strand.
// Errors: what is wrong with it; kCancelled if its caller was cancelled before,
// and has asked not to throw then.
template <typename Core>
asio::awaitable<absl::StatusOr<PreparedRequest>> Prepare(
    std::shared_ptr<Core> core, Request request) {
  const absl::Status valid = Validate(*core, &request);
  if (!valid.ok()) co_return valid;
  const asio::cancellation_state state =
      co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none) {
    co_return CancelledByCaller();
  }
  GiveSeed(&request);
  co_return PreparedRequest(std::move(request), core->tokenizer);
}

// Parameters are values: the coroutine may outlive the engine.
template <typename Core>
asio::awaitable<absl::StatusOr<Result>> RunRequest(std::shared_ptr<Core> core,
                                                   Request request) {
  absl::StatusOr<PreparedRequest> prepared =
      co_await Prepare(core, std::move(request));
  if (!prepared.ok()) co_return prepared.status();

  using Value = absl::StatusOr<Result>;
  const auto executor = co_await asio::this_coro::executor;
  const auto answer = std::make_shared<AnswerChannel<Value>>(executor, 1);
  const RequestId id = core->NextId();
  asio::post(core->strand, [core, id, send = SendTo<Value>(answer),
                            prepared = *std::move(prepared)]() mutable {
    core->Submit(id, std::move(prepared), std::move(send));
  });

  CancelUnlessAnswered guard(Canceller(core, id));
  auto [error, result] =
      co_await answer->async_receive(asio::as_tuple(asio::use_awaitable));
  if (error) co_return CancelledByCaller();
  guard.Answered();
  co_return std::move(result);
}

template <typename Core>
asio::awaitable<absl::StatusOr<ResultStream>> OpenStream(
    std::shared_ptr<Core> core, Request request, StreamOptions options) {
  absl::StatusOr<PreparedRequest> prepared =
      co_await Prepare(core, std::move(request));
  if (!prepared.ok()) co_return prepared.status();

  const auto executor = co_await asio::this_coro::executor;
  const auto answer =
      std::make_shared<AnswerChannel<absl::Status>>(executor, 1);
  const auto queue = std::make_shared<EventQueue>();
  const RequestId id = core->NextId();
  std::unique_ptr<SearchWatcher> writer =
      MakeStreamWriter(*prepared, options, queue);
  asio::post(
      core->strand,
      [core, id, queue, send = SendTo<absl::Status>(answer),
       prepared = *std::move(prepared), writer = std::move(writer)]() mutable {
        send(core->Stream(id, std::move(prepared), std::move(writer), queue));
      });

  CancelUnlessAnswered guard(Canceller(core, id));
  auto [error, accepted] =
      co_await answer->async_receive(asio::as_tuple(asio::use_awaitable));
  if (error) co_return CancelledByCaller();
  guard.Answered();
  if (!accepted.ok()) co_return accepted;
  const auto read = [core, queue](int64_t num_received,
                                  EventQueue::Reader reader) {
    asio::post(core->strand,
               [queue, num_received, reader = std::move(reader)]() mutable {
                 queue->Read(num_received, std::move(reader));
               });
  };
  co_return ResultStream({.read = read, .cancel = Canceller(core, id)});
}

template <typename Core>
asio::awaitable<void> RunShutdown(std::shared_ptr<Core> core, std::string why) {
  const auto executor = co_await asio::this_coro::executor;
  const auto stopped = std::make_shared<AnswerChannel<bool>>(executor, 1);
  asio::post(core->strand,
             [core, why = std::move(why), send = SendTo<bool>(stopped)] {
               core->Stop(why, [send] { send(true); });
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

absl::StatusOr<Engine> Engine::Create(asio::any_io_executor executor,
                                      std::shared_ptr<StepExecutor> steps,
                                      const EngineOptions& options) {
  if (!executor) return InvalidArgument("executor must not be empty");
  if (steps == nullptr) return InvalidArgument("steps must not be null");
  RETURN_IF_ERROR(CheckOptions(options.scheduler));
  RETURN_IF_ERROR(CheckDescription(steps->description()));
  if (steps->max_plans_in_flight() < 1) {
    return InvalidArgument(
        "max_plans_in_flight() of steps must be at least 1, "
        "got ",
        steps->max_plans_in_flight());
  }
  try {
    return Engine(
        std::make_shared<Core>(std::move(executor), std::move(steps), options));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("not enough memory for an engine");
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
  asio::post(core_->strand, [core = core_] { core->Stop(kShutDown, [] {}); });
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

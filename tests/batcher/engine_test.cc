#include "batcher/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "executor/host/model_executor.h"
#include "tests/batcher/manual_executor.h"
#include "tests/batcher/toy_requests.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

namespace asio = boost::asio;
using namespace ::espalier::testing;  // NOLINT
using ::testing::HasSubstr;

using Answer = std::optional<absl::StatusOr<Result>>;

// An engine whose every step is under the test's control; the parameter says
// how many plans it keeps in flight.
class ManualEngineTest : public ::testing::TestWithParam<int> {
 protected:
  // Starts request i; `answers_[i]` is set when it is answered.
  void Start(const Request& request) {
    const size_t i = answers_.size();
    answers_.emplace_back();
    signals_.push_back(std::make_unique<asio::cancellation_signal>());
    asio::co_spawn(
        context_, engine_->Generate(request),
        asio::bind_cancellation_slot(
            signals_[i]->slot(),
            [this, i](std::exception_ptr, absl::StatusOr<Result> result) {
              answers_[i] = std::move(result);
            }));
  }
  void Poll() {
    context_.restart();
    context_.poll();
  }
  // Runs at most `count` steps.
  void RunSteps(int count) {
    Poll();
    for (; count > 0 && steps_.num_started() > 0; --count) {
      steps_.RunStep();
      Poll();
    }
  }
  void Cancel(int i) { signals_[i]->emit(asio::cancellation_type::terminal); }
  EngineStats Stats() {
    std::future<EngineStats> stats =
        asio::co_spawn(context_, engine_->Stats(), asio::use_future);
    Poll();
    return stats.get();
  }
  void ExpectNothingHeld() {
    const EngineStats stats = Stats();
    EXPECT_EQ(stats.num_pages_held, 0);
    EXPECT_EQ(stats.num_running, 0);
    EXPECT_EQ(stats.num_waiting, 0);
    EXPECT_EQ(model_.num_sequences(), 0);
    EXPECT_EQ(steps_.num_groups(), 0);
  }

  ToyModel model_{SmallModel(GetParam())};
  ManualExecutor steps_{&model_, GetParam()};  // the context's end uses it
  asio::io_context context_;
  std::unique_ptr<Engine> engine_ = std::make_unique<Engine>(
      MakeEngine(context_.get_executor(), &steps_, Validated(3)));
  std::vector<Answer> answers_;
  std::vector<std::unique_ptr<asio::cancellation_signal>> signals_;
};

constexpr int kAll = 1 << 20;

INSTANTIATE_TEST_SUITE_P(PlansInFlight, ManualEngineTest,
                         ::testing::Values(1, 2));

TEST_P(ManualEngineTest, KeepsAsManyPlansInFlightAsItsExecutorTakes) {
  Request request{{1, 2, 3}, {}};
  request.params.num_beams = 2;
  request.params.max_new_tokens = 6;
  request.params.eos_token_id = std::vector<int64_t>();
  Start(request);
  Poll();
  // The prompt, and five steps; what ended is said last.
  for (int step = 0; step < 6; ++step) {
    EXPECT_EQ(steps_.num_started(), step < 5 ? GetParam() : 1);
    RunSteps(1);
  }
  ASSERT_TRUE(answers_[0].has_value());
  EXPECT_OK(*answers_[0]);
  RunSteps(1);
  EXPECT_EQ(Stats().num_steps, 6);
  ExpectNothingHeld();
}

// Its steps draft for an hour each.
class SlowDrafts : public ManualExecutor {
 public:
  using ManualExecutor::ManualExecutor;
  void Execute(StepPlan plan, Done done) override {
    ManualExecutor::Execute(
        std::move(plan),
        [done = std::move(done)](absl::StatusOr<StepResult> result) {
          result->draft_time = absl::Hours(1);
          done(std::move(result));
        });
  }
};

TEST(EngineTest, TimeOfDraftsIsNoDispatchOverhead) {
  ToyModel model(SmallModel());
  SlowDrafts steps(&model, 1);
  asio::io_context context;
  Engine engine = MakeEngine(context.get_executor(), &steps);
  Request request{{1, 2, 3}, {}};
  request.params.max_new_tokens = 4;
  request.params.ignore_eos = true;
  asio::co_spawn(context, engine.Generate(request), asio::detached);
  const auto poll = [&] {
    context.restart();
    context.poll();
  };
  for (poll(); steps.num_started() > 0; poll()) steps.RunStep();
  auto stats = asio::co_spawn(context, engine.Stats(), asio::use_future);
  poll();
  const EngineStats after = stats.get();
  EXPECT_GE(after.draft_time, 4 * absl::Hours(1));
  EXPECT_EQ(after.hand_over_time, absl::ZeroDuration());
}

TEST_P(ManualEngineTest, CancellingAtAnyMomentEndsThatRequestAtOnce) {
  const auto requests = RandomRequests(5, 31, model_.description());
  for (int moment = 0; moment < 25; ++moment) {
    answers_.clear();
    for (const Request& request : requests) Start(request);
    RunSteps(moment / 2);
    const int victim = moment % 5;
    const bool was_answered = answers_[victim].has_value();
    Cancel(victim);
    Poll();
    ASSERT_TRUE(answers_[victim].has_value());  // without another step
    if (!was_answered) {
      EXPECT_THAT(*answers_[victim], StatusIs(absl::StatusCode::kCancelled,
                                              "cancelled by its caller"));
    }
    RunSteps(kAll);
    for (int i = 0; i < 5; ++i) {
      if (i == victim) continue;
      ASSERT_OK_AND_ASSIGN(const Result alone,
                           RunAlone(SmallModel(), requests[i]));
      ASSERT_TRUE(answers_[i].has_value());
      ASSERT_OK(*answers_[i]);
      EXPECT_TRUE(SameResult(**answers_[i], alone));
    }
    ExpectNothingHeld();
  }
}

TEST_P(ManualEngineTest, ADeadlineCanRaceARequest) {
  using namespace asio::experimental::awaitable_operators;
  Request request = RandomRequests(1, 37, model_.description())[0];
  bool deadline_won = false;
  asio::co_spawn(
      context_,
      [&]() -> asio::awaitable<void> {
        asio::steady_timer timer(context_, std::chrono::milliseconds(1));
        const auto first = co_await (engine_->Generate(request) ||
                                     timer.async_wait(asio::use_awaitable));
        deadline_won = first.index() == 1;
      },
      asio::detached);
  constexpr int kMany = 300;  // a machine may be slow
  for (int i = 0; i < kMany && !deadline_won; ++i) {
    context_.run_for(std::chrono::milliseconds(200));  // no step is ever run
  }
  EXPECT_TRUE(deadline_won);
  RunSteps(kAll);
  ExpectNothingHeld();
}

TEST_P(ManualEngineTest, ABadRequestIsRefusedBeforeAnythingIsHeld) {
  Request request;
  request.prompt_tokens = {1, 99};
  Start(request);
  Poll();
  ASSERT_TRUE(answers_[0].has_value());
  EXPECT_THAT(*answers_[0],
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "prompt_tokens[1] must be a token id in [0, 11), got "
                       "99"));
  EXPECT_EQ(steps_.num_started(), 0);
  ExpectNothingHeld();
}

TEST_P(ManualEngineTest, ShutdownCancelsEveryoneAndWaitsForTheStep) {
  for (const Request& request : RandomRequests(5, 41, model_.description())) {
    Start(request);
  }
  RunSteps(2);
  bool stopped = false;
  asio::co_spawn(context_, engine_->Shutdown(),
                 [&](std::exception_ptr) { stopped = true; });
  Poll();
  EXPECT_FALSE(stopped);  // a step is in flight
  for (const Answer& answer : answers_) ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(*answers_.back(), StatusIs(absl::StatusCode::kCancelled,
                                         "the engine is shut down"));
  RunSteps(kAll);
  EXPECT_TRUE(stopped);
  ExpectNothingHeld();

  Start(RandomRequests(1, 43, model_.description())[0]);
  Poll();
  EXPECT_THAT(*answers_.back(), StatusIs(absl::StatusCode::kCancelled,
                                         "the engine is shut down"));
}

TEST_P(ManualEngineTest, RequestsAreToldWhyItWasShutDown) {
  Request request{{1, 2, 3}, {}};
  request.params.ignore_eos = true;
  Start(request);
  RunSteps(2);
  for (const char* why : {"interrupted", "shut down once more"}) {
    asio::co_spawn(context_, engine_->Shutdown(why), asio::detached);
  }
  Start(request);
  RunSteps(kAll);
  for (const Answer& answer : answers_) {
    ASSERT_TRUE(answer.has_value());
    EXPECT_THAT(*answer, StatusIs(absl::StatusCode::kCancelled, "interrupted"));
  }
  ExpectNothingHeld();
}

TEST_P(ManualEngineTest, DestroyingTheEngineAnswersItsRequests) {
  for (const Request& request : RandomRequests(5, 47, model_.description())) {
    Start(request);
  }
  RunSteps(2);
  const std::vector<Answer> before = answers_;
  ASSERT_FALSE(before.back().has_value());
  engine_.reset();
  Poll();
  for (size_t i = 0; i < answers_.size(); ++i) {
    ASSERT_TRUE(answers_[i].has_value());
    if (before[i].has_value()) continue;
    EXPECT_THAT(*answers_[i], StatusIs(absl::StatusCode::kCancelled,
                                       "the engine is shut down"));
  }
  // The step in flight still reports; its result is dropped.
  RunSteps(kAll);
  EXPECT_EQ(steps_.num_started(), 0);
}

// A loop of requests must end with the cancellation of one of them.
TEST_P(ManualEngineTest, GenerateLeavesItsCallersCancellationAsItWas) {
  const auto requests = RandomRequests(3, 59, model_.description());
  int num_answers = 0;
  bool ended = false;
  asio::cancellation_signal signal;
  asio::co_spawn(
      context_,
      [&]() -> asio::awaitable<void> {
        for (const Request& request : requests) {
          const absl::StatusOr<Result> answer =
              co_await engine_->Generate(request);
          EXPECT_THAT(answer, StatusIs(absl::StatusCode::kCancelled,
                                       "cancelled by its caller"));
          ++num_answers;
        }
      },
      asio::bind_cancellation_slot(signal.slot(),
                                   [&](std::exception_ptr) { ended = true; }));
  RunSteps(1);
  signal.emit(asio::cancellation_type::terminal);
  RunSteps(kAll);
  EXPECT_TRUE(ended);
  EXPECT_EQ(num_answers, 1);  // awaiting the second throws, as ever
  ExpectNothingHeld();
}

// The caller's coroutine is destroyed with its context while it waits.
TEST_P(ManualEngineTest, ACallersContextMayEndBeforeTheEnginesDoes) {
  {
    asio::io_context callers;
    for (const Request& request : RandomRequests(4, 61, model_.description())) {
      asio::co_spawn(callers, engine_->Generate(request), asio::detached);
    }
    callers.poll();
    RunSteps(2);
  }
  RunSteps(kAll);
  ExpectNothingHeld();
}

class EngineTest : public ::testing::TestWithParam<int> {
 protected:
  ToyModelOptions SmallModel() const { return testing::SmallModel(GetParam()); }
  ModelExecutorOptions Steps() const { return {.run_ahead = GetParam() > 1}; }
};

INSTANTIATE_TEST_SUITE_P(PlansInFlight, EngineTest, ::testing::Values(1, 2));

// Callers on several threads, the engine on others, the model on its own.
TEST_P(EngineTest, ManyCallersOnManyThreadsGetTheirOwnResults) {
  ToyModel model(SmallModel());
  asio::thread_pool engine_threads(2);
  asio::thread_pool caller_threads(3);
  Engine engine = MakeEngine(engine_threads.get_executor(),
                             MakeExecutor(&model, 2, Steps()), Validated(8));
  const auto requests = RandomRequests(200, 53, model.description());
  std::vector<std::future<absl::StatusOr<Result>>> answers;
  for (const Request& request : requests) {
    answers.push_back(asio::co_spawn(caller_threads, engine.Generate(request),
                                     asio::use_future));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const absl::StatusOr<Result> answer = answers[i].get();
    const absl::StatusOr<Result> alone = RunAlone(SmallModel(), requests[i]);
    // Some have no token that is possible.
    ASSERT_EQ(answer.status(), alone.status()) << i;
    if (!alone.ok()) continue;
    EXPECT_TRUE(SameResult(*answer, *alone)) << i;
  }
  asio::co_spawn(caller_threads, engine.Shutdown(), asio::use_future).get();
  const EngineStats stats =
      asio::co_spawn(caller_threads, engine.Stats(), asio::use_future).get();
  EXPECT_EQ(stats.num_pages_held, 0);
  EXPECT_GT(stats.num_steps, 0);
}

TEST_P(EngineTest, APreparedRequestRunsOnceInTheEngineThatPreparedIt) {
  ToyModel model(SmallModel()), other_model(SmallModel());
  asio::thread_pool context(1);
  Engine engine = MakeEngine(context.get_executor(),
                             MakeExecutor(&model, 1, Steps()), Validated());
  Engine other =
      MakeEngine(context.get_executor(), MakeExecutor(&other_model, 1, Steps()),
                 Validated());
  const auto run = [&](Engine& on, Engine::Prepared prepared) {
    return asio::co_spawn(context, on.Generate(std::move(prepared)),
                          asio::use_future)
        .get();
  };
  ASSERT_OK_AND_ASSIGN(Engine::Prepared prepared, engine.Prepare({{1, 2}, {}}));
  Engine::Prepared moved = std::move(prepared);
  EXPECT_THAT(
      run(engine, std::move(prepared)),  // NOLINT: moved from
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("moved from")));
  EXPECT_THAT(
      engine.Complete(&prepared),  // NOLINT: moved from
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("moved from")));
  EXPECT_OK(run(engine, std::move(moved)));
  ASSERT_OK_AND_ASSIGN(moved, engine.Prepare({{1, 2}, {}}));
  for (const absl::Status& status :
       {other.TakePlace(&moved), other.Complete(&moved)}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("another engine")));
  }
  EXPECT_THAT(run(other, std::move(moved)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("another engine")));
}

// The model runs until plan.stop is requested. If its step did not end, neither
// the shutdown nor the executor would.
TEST_P(EngineTest, AStepInFlightEndsWithTheEngine) {
  class Endless : public ToyModel {
   public:
    using ToyModel::ToyModel;
    absl::Status Forward(const StepPlan& plan,
                         std::span<float> logits) override {
      if (plan.empty()) return ToyModel::Forward(plan, logits);
      if (!begun.exchange(true)) began.set_value();
      while (!plan.stop.stop_requested()) std::this_thread::yield();
      return absl::CancelledError("given up");
    }
    std::atomic<bool> begun = false;
    std::promise<void> began;
  };
  for (const bool shuts_down : {true, false}) {
    Endless model(SmallModel());
    asio::thread_pool context(1);
    std::optional<Engine> engine = MakeEngine(
        context.get_executor(), MakeExecutor(&model, 1, Steps()), Validated());
    auto answer = asio::co_spawn(context, engine->Generate({{1, 2}, {}}),
                                 asio::use_future);
    model.began.get_future().wait();
    if (shuts_down) {
      asio::co_spawn(context, engine->Shutdown(), asio::use_future).get();
    }
    engine.reset();
    // Abseil counts the owners of a status where ThreadSanitizer does not look.
    context.join();
    EXPECT_THAT(answer.get(), StatusIs(absl::StatusCode::kCancelled,
                                       "the engine is shut down"));
  }
}

// run() must not return between the last answer and the report of the step that
// drops the sequences.
TEST_P(EngineTest, TheContextRunsUntilTheLastStepHasReported) {
  for (int i = 0; i < 200; ++i) {
    ToyModel model(SmallModel());
    asio::io_context context;
    Engine engine = MakeEngine(context.get_executor(),
                               MakeExecutor(&model, 1, Steps()), Validated());
    asio::co_spawn(context, engine.Generate({{1, 2}, {}}), asio::detached);
    context.run();
    EXPECT_EQ(model.num_sequences(), 0);
  }
}

TEST_P(EngineTest, AFailingModelEndsTheRequestsOfThatStepOnly) {
  // Fails once a row's history holds token 7.
  class Fragile : public ToyModel {
   public:
    using ToyModel::ToyModel;
    absl::Status Forward(const StepPlan& plan,
                         std::span<float> logits) override {
      for (const TokenId token : plan.tokens) {
        if (token == 7) return absl::DataLossError("cannot do sevens");
      }
      return ToyModel::Forward(plan, logits);
    }
  };
  ToyModelOptions options;
  options.eos_token_ids = {7};  // never fed, so never a cause
  Fragile model(options);
  asio::io_context context;
  Engine engine = MakeEngine(context.get_executor(),
                             MakeExecutor(&model, 1, Steps()), Validated(1));
  Request good{{1, 2, 3}, {}};
  Request bad{{1, 7, 3}, {}};
  std::vector<std::future<absl::StatusOr<Result>>> answers;
  for (const Request& request : {good, bad, good}) {
    answers.push_back(
        asio::co_spawn(context, engine.Generate(request), asio::use_future));
  }
  context.run();
  EXPECT_OK(answers[0].get());
  EXPECT_THAT(answers[1].get(), StatusIs(absl::StatusCode::kDataLoss,
                                         HasSubstr("cannot do sevens")));
  EXPECT_OK(answers[2].get());
}

}  // namespace
}  // namespace espalier

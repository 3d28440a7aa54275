// Steps with a late result or none, under EngineOptions::step_timeout: every
// request ends once, the engine continues when the result comes, and it can be
// stopped and destroyed without it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "batcher/engine.h"
#include "batcher/step_watchdog.h"
#include "executor/host/model_executor.h"
#include "tests/batcher/enough_time.h"
#include "tests/batcher/manual_executor.h"
#include "tests/batcher/toy_requests.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

namespace asio = boost::asio;
using namespace ::espalier::testing;  // NOLINT
using ::testing::HasSubstr;

using Answer = std::future<absl::StatusOr<Result>>;

constexpr absl::Duration kSoon = absl::Milliseconds(100);
constexpr absl::Duration kLong = absl::Milliseconds(500);

EngineOptions WithTimeout(absl::Duration timeout, int max_running = 256) {
  EngineOptions options = Validated(max_running);
  options.step_timeout = timeout;
  return options;
}

auto IsLate(absl::Duration timeout = kSoon) {
  return StatusIs(
      absl::StatusCode::kUnavailable,
      "the step did not answer within " + absl::FormatDuration(timeout));
}
auto IsRefused(absl::Duration timeout) {
  return StatusIs(absl::StatusCode::kUnavailable,
                  "a step has not answered within " +
                      absl::FormatDuration(timeout) +
                      "; requests are refused until it does");
}

// Reads it to its end, and returns the error.
asio::awaitable<absl::StatusOr<Result>> ReadStream(Engine& engine,
                                                   Request request) {
  auto stream = co_await engine.Stream(std::move(request));
  if (!stream.ok()) co_return stream.status();
  while (true) {
    auto event = co_await stream->Next();
    if (!event.ok()) co_return event.status();
    if (!event->has_value()) co_return absl::UnknownError("no result");
    if (auto* result = std::get_if<Result>(&**event)) {
      co_return std::move(*result);
    }
  }
}

// An engine, and an executor whose steps the test runs.
class StepTimeoutTest : public ::testing::TestWithParam<int> {
 protected:
  // Calls `body(timeout)`, with time enough for its steps.
  template <typename Body>
  void Attempt(absl::Duration timeout, const Body& body) {
    WithTimeFrom(timeout, [&](absl::Duration enough) {
      longest_step_ = absl::ZeroDuration();
      body(enough);
      engine_.reset();
      while (steps_->num_started() > 0) steps_->RunStep();
      Poll();
      model_ = std::make_unique<ToyModel>(SmallModel(GetParam()));
      steps_ = std::make_shared<ManualExecutor>(model_.get(), GetParam());
      return longest_step_;
    });
  }
  void Make(const EngineOptions& options) {
    engine_ = std::make_unique<Engine>(
        MakeEngine(context_.get_executor(), steps_, options));
  }
  Answer Ask(const Request& request) {
    return asio::co_spawn(context_, engine_->Generate(request),
                          asio::use_future);
  }
  void Poll() {
    step_began_ = absl::Now();
    context_.restart();
    context_.poll();
  }
  // Until nothing is to be done, or waited for.
  void RunContext() {
    context_.restart();
    context_.run();
    step_began_ = absl::Now();
  }
  void RunSteps(int count) {
    for (; count > 0 && steps_->num_started() > 0; --count) {
      const absl::Time began = step_began_;
      steps_->RunStep();
      Poll();
      longest_step_ = std::max(longest_step_, absl::Now() - began);
    }
  }
  EngineStats Stats() {
    auto stats = asio::co_spawn(context_, engine_->Stats(), asio::use_future);
    Poll();
    return stats.get();
  }
  void ExpectNothingHeld() {
    const EngineStats stats = Stats();
    EXPECT_EQ(stats.num_pages_held, 0);
    EXPECT_EQ(stats.num_running + stats.num_waiting + stats.num_preempted, 0);
  }
  // New requests get what each gets alone.
  void ExpectThatItRuns() {
    const auto requests = RandomRequests(4, 17, model_->description());
    std::vector<Answer> answers;
    for (const Request& request : requests) answers.push_back(Ask(request));
    Poll();
    RunSteps(1000);
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto answer = answers[i].get();
      const auto alone = RunAlone(SmallModel(GetParam()), requests[i]);
      ASSERT_EQ(answer.status(), alone.status()) << i;
      if (!alone.ok()) continue;
      EXPECT_TRUE(SameResult(*answer, *alone)) << i;
    }
    ExpectNothingHeld();
    EXPECT_EQ(model_->num_sequences(), 0);
    EXPECT_EQ(steps_->num_groups(), 0);
  }

  std::unique_ptr<ToyModel> model_ =
      std::make_unique<ToyModel>(SmallModel(GetParam()));
  asio::io_context context_;
  std::shared_ptr<ManualExecutor> steps_ =
      std::make_shared<ManualExecutor>(model_.get(), GetParam());
  std::unique_ptr<Engine> engine_;
  absl::Time step_began_ = absl::Now();  // or may have
  absl::Duration longest_step_;          // longest step of RunSteps
};

INSTANTIATE_TEST_SUITE_P(PlansInFlight, StepTimeoutTest,
                         ::testing::Values(1, 2));

TEST_P(StepTimeoutTest, ALateStepEndsAllRequestsAndItsAnswerLetsOthersRun) {
  for (int num_good_steps = 0; num_good_steps < 6; ++num_good_steps) {
    SCOPED_TRACE(num_good_steps);
    Attempt(kSoon, [&](absl::Duration timeout) {
      Make(WithTimeout(timeout, 3));
      std::vector<Answer> answers;
      for (int i = 0; i < 4; ++i) {  // one waits
        Request request = LongRequest(20);
        request.prompt_tokens.assign(9, 2 + i);
        request.params.num_beams = 1 + i;
        answers.push_back(Ask(request));
      }
      answers.push_back(asio::co_spawn(
          context_, ReadStream(*engine_, LongRequest(20)), asio::use_future));
      Poll();
      RunSteps(num_good_steps);
      RunContext();  // which does not wait for the step
      for (Answer& answer : answers) {
        EXPECT_THAT(answer.get(), IsLate(timeout));
      }
      ExpectNothingHeld();

      const int num_in_flight = steps_->num_started();
      EXPECT_GE(num_in_flight, 1);
      Answer refused = Ask(LongRequest(2));
      Answer refused_stream = asio::co_spawn(
          context_, ReadStream(*engine_, LongRequest(2)), asio::use_future);
      RunContext();
      EXPECT_THAT(refused.get(), IsRefused(timeout));
      EXPECT_THAT(refused_stream.get(), IsRefused(timeout));
      EXPECT_EQ(steps_->num_started(), num_in_flight);  // nothing is planned

      RunSteps(1000);
      ExpectThatItRuns();
    });
  }
}

// Both of two plans in flight are late, one after the other.
TEST_P(StepTimeoutTest, EachStepHasItsOwnTime) {
  Attempt(kSoon, [&](absl::Duration timeout) {
    Make(WithTimeout(timeout));
    Answer first = Ask(LongRequest(20));
    Poll();
    RunSteps(2);
    RunContext();
    EXPECT_THAT(first.get(), IsLate(timeout));
    RunSteps(1);
    Answer second = Ask(LongRequest(20));
    RunContext();
    EXPECT_THAT(second.get(), IsLate(timeout));
    RunSteps(1000);
    ExpectThatItRuns();
  });
}

TEST_P(StepTimeoutTest, ABusyStrandMakesNoStepLate) {
  Attempt(kLong, [&](absl::Duration timeout) {
    Make(WithTimeout(timeout));
    Answer answer = Ask(LongRequest(3));
    Poll();
    asio::post(context_, [&] {
      steps_->RunStep();  // its answer waits for this
      longest_step_ = std::max(longest_step_, absl::Now() - step_began_);
      std::this_thread::sleep_for(absl::ToChronoMilliseconds(2 * timeout));
    });
    Poll();
    step_began_ = absl::Now();
    RunSteps(1000);
    EXPECT_OK(answer.get());
  });
}

TEST_P(StepTimeoutTest, ManyStepsTogetherMayTakeLonger) {
  Attempt(kLong, [&](absl::Duration timeout) {
    Make(WithTimeout(timeout));
    Answer answer = Ask(LongRequest(14));
    Poll();
    int num_steps = 0;
    for (; steps_->num_started() > 0; ++num_steps) {
      std::this_thread::sleep_for(absl::ToChronoMilliseconds(timeout / 10));
      RunSteps(1);
    }
    EXPECT_GE(num_steps, 14);
    EXPECT_OK(answer.get());
  });
}

TEST_P(StepTimeoutTest, AnIdleEngineIsNeverLate) {
  Attempt(kSoon, [&](absl::Duration timeout) {
    Make(WithTimeout(timeout));
    RunContext();
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(3 * timeout));
    ExpectThatItRuns();
  });
}

TEST_P(StepTimeoutTest, ShutdownDoesNotWaitForALateStep) {
  for (const bool is_late_before : {false, true}) {
    Attempt(kSoon, [&](absl::Duration timeout) {
      Make(WithTimeout(timeout));
      Answer answer = Ask(LongRequest(20));
      Poll();
      RunSteps(1);
      if (is_late_before) RunContext();
      auto stopped =
          asio::co_spawn(context_, engine_->Shutdown(), asio::use_future);
      const absl::Time began = step_began_;
      Poll();
      if (!is_late_before) {
        longest_step_ = std::max(longest_step_, absl::Now() - began);
      }
      RunContext();
      stopped.get();
      EXPECT_EQ(answer.get().status().code(),
                is_late_before ? absl::StatusCode::kUnavailable
                               : absl::StatusCode::kCancelled);
      // Its steps are still in it.
      EXPECT_THAT(Engine::Create(context_.get_executor(), steps_),
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           HasSubstr("steps serve another engine")));
      RunSteps(1000);
      EXPECT_OK(Engine::Create(context_.get_executor(), steps_));
      Poll();  // it ends
    });
  }
}

// While a step waits, is late, or was late when it was answered.
TEST_P(StepTimeoutTest, ALateAnswerMayFindNothingOfTheEngine) {
  for (int moment = 0; moment < 3; ++moment) {
    auto context = std::make_unique<asio::io_context>();
    auto steps = std::make_shared<ManualExecutor>(model_.get(), GetParam());
    auto engine = std::make_unique<Engine>(
        MakeEngine(context->get_executor(), steps, WithTimeout(kSoon)));
    Answer answer = asio::co_spawn(*context, engine->Generate(LongRequest(9)),
                                   asio::use_future);
    context->poll();
    if (moment > 0) context->run();
    engine.reset();
    if (moment == 2) {
      context->restart();
      context->run();
    }
    context.reset();
    if (moment > 0) {
      EXPECT_THAT(answer.get(), IsLate());
    }
    EXPECT_GT(steps.use_count(), 1);  // kept
    while (steps->num_started() > 0) steps->RunStep();
  }
}

TEST(StepTimeoutOptionTest, MustBePositive) {
  ToyModel model(SmallModel());
  asio::io_context context;
  for (const absl::Duration timeout :
       {absl::ZeroDuration(), absl::Seconds(-2), -absl::InfiniteDuration()}) {
    EXPECT_THAT(Engine::Create(context.get_executor(),
                               std::make_shared<ManualExecutor>(&model, 1),
                               WithTimeout(timeout)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("step_timeout must be above 0, got " +
                                   absl::FormatDuration(timeout))));
  }
}

// Gives nothing up, and does not come back before it is let go.
class HangingModel : public ToyModel {
 public:
  HangingModel() : ToyModel(SmallModel()) {}
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!plan.rows.empty()) {
      ++num_hanging_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return may_go_on_; });
      --num_hanging_;
    }
    const absl::Status status = ToyModel::Forward(plan, logits);
    changed_.notify_all();
    return status;
  }
  void AwaitHanging() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return num_hanging_ > 0; });
  }
  void GoOn() {
    std::unique_lock<std::mutex> lock(mutex_);
    may_go_on_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return num_hanging_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_hanging_ = 0;
  bool may_go_on_ = false;
};

// As a program ends: its parts go in any order while a thread of the executor
// is in the model. Then the model comes back, to memory that is still there.
TEST(HangingStepTest, EverythingMayBeDestroyedAroundIt) {
  for (int order = 0; order < 4; ++order) {
    auto model = std::make_shared<HangingModel>();
    const std::weak_ptr<Model> life = model;
    std::shared_ptr<StepExecutor> steps =
        ModelExecutor::Create(model, MakePool(1)).value();
    auto context = std::make_unique<asio::io_context>();
    auto engine = std::make_unique<Engine>(
        MakeEngine(context->get_executor(), steps, WithTimeout(kSoon)));
    Answer answer = asio::co_spawn(*context, engine->Generate(LongRequest(9)),
                                   asio::use_future);
    context->poll();
    model->AwaitHanging();
    HangingModel* const hanging = model.get();
    model.reset();
    if (order % 2 == 0) context->run();  // until it is late
    if (order < 2) {
      engine.reset();
      context.reset();
      steps.reset();
    } else {
      steps.reset();
      context.reset();
      engine.reset();
    }
    if (order % 2 == 0) {
      EXPECT_THAT(answer.get(), IsLate());
    }
    ASSERT_FALSE(life.expired());
    hanging->GoOn();
  }
}

TEST(HangingStepTest, ShutdownThenDestructionOnAThreadThatRunsTheContext) {
  WithTimeFrom(kSoon, [](absl::Duration timeout) {
    auto model = std::make_shared<HangingModel>();
    asio::io_context context;
    auto engine = std::make_unique<Engine>(
        MakeEngine(context.get_executor(),
                   ModelExecutor::Create(model, MakePool(1)).value(),
                   WithTimeout(timeout)));
    Answer answer = asio::co_spawn(context, engine->Generate(LongRequest(9)),
                                   asio::use_future);
    const absl::Time began = absl::Now();
    context.poll();
    model->AwaitHanging();
    asio::co_spawn(context, engine->Shutdown("interrupted"), asio::detached);
    context.restart();
    context.poll();
    const absl::Duration before_shutdown = absl::Now() - began;
    context.restart();
    context.run();
    engine.reset();
    context.restart();
    context.run();
    EXPECT_THAT(answer.get(),
                StatusIs(absl::StatusCode::kCancelled, "interrupted"));
    model->GoOn();
    return before_shutdown;
  });
}

TEST(StepStopsTest, StopPresentStopsNoLaterStep) {
  StepStops stops;
  const std::stop_token first = stops.token();
  stops.StopPresent();
  EXPECT_TRUE(first.stop_requested());
  const std::stop_token second = stops.token();
  EXPECT_FALSE(second.stop_requested());
  stops.StopAll();
  EXPECT_TRUE(second.stop_requested());
  stops.StopPresent();
  EXPECT_TRUE(stops.token().stop_requested());
}

}  // namespace
}  // namespace espalier

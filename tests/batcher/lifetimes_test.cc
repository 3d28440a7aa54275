// Whatever is destroyed first, and whatever a request is at then: nothing is
// used that is gone (as AddressSanitizer sees), every wait ends, and
// nothing hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "batcher/engine.h"
#include "executor/host/model_executor.h"
#include "tests/batcher/manual_executor.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"
#include "tests/text/fake_tokenizer_model.h"

namespace espalier {
namespace {

namespace asio = boost::asio;
using namespace ::espalier::testing;  // NOLINT

class CountingSink : public TraceSink {
 public:
  void On(const TraceEvent&) override { ++num_events_; }

 private:
  int num_events_ = 0;
};

std::shared_ptr<const Tokenizer> MakeTokenizer() {
  FakeTokenizerModel model;
  model.pieces = {{"<unk>", PieceType::kUnknown}};
  for (int i = 1; i < 11; ++i)
    model.pieces.push_back({std::string(1, 'a' + i)});
  return model.Load().value();
}

// All that a program has that uses an engine; the test destroys the parts in
// any order.
class World {
 public:
  enum Part {
    kEngine,
    kSteps,
    kModel,
    kTokenizer,
    kTrace,
    kStream,
    kContext,
    kCallers,
    kNumParts
  };

  World(int plans_in_flight, const std::shared_ptr<const Tokenizer>& copied)
      : tokenizer_(copied),
        model_(std::make_shared<ToyModel>(SmallModel(plans_in_flight))),
        steps_(std::make_shared<OwningExecutor>(model_, plans_in_flight)) {
    EngineOptions options = Validated(2);
    options.tokenizer = tokenizer_;
    options.scheduler.trace = trace_;
    engine_ = std::make_unique<Engine>(
        MakeEngine(context_->get_executor(), steps_, options));
  }
  ~World() {
    for (int part = 0; part < kNumParts; ++part) Destroy(Part(part));
  }

  // The request waits, runs, or is being answered, depending on the test.
  void Generate(asio::io_context* context) {
    if (engine_ == nullptr || context == nullptr) return;
    Request request = LongRequest(3);
    request.params.num_beams = 2;
    asio::co_spawn(*context, engine_->Generate(request), asio::detached);
  }
  void OpenStream() {
    asio::co_spawn(*context_, engine_->Stream(LongRequest(6)),
                   [this](std::exception_ptr, absl::StatusOr<ResultStream> s) {
                     if (s.ok()) stream_ = *std::move(s);
                   });
  }
  void ReadStream(asio::io_context* context) {
    if (!stream_.has_value() || context == nullptr) return;
    asio::co_spawn(*context, stream_->Next(), asio::detached);
  }
  void Poll(const std::unique_ptr<asio::io_context>& context, int count) {
    if (context == nullptr) return;
    context->restart();
    for (; count > 0; --count) context->poll_one();
  }
  void PollBoth(int count) {
    Poll(context_, count);
    Poll(callers_, count);
  }
  // Reports to an engine that may be gone, on a context that may be.
  void RunStep() {
    if (steps_ != nullptr && steps_->manual.num_started() > 0) {
      steps_->manual.RunStep();
    }
  }

  void Destroy(Part part) {
    switch (part) {
      case kEngine:
        return engine_.reset();
      case kSteps:
        return steps_.reset();
      case kModel:
        return model_.reset();
      case kTokenizer:
        return tokenizer_.reset();
      case kTrace:
        return trace_.reset();
      case kStream:
        return stream_.reset();
      case kContext:
        return context_.reset();
      case kCallers:
        return callers_.reset();
      case kNumParts:
        return;
    }
  }

  asio::io_context* context() { return context_.get(); }
  asio::io_context* callers() { return callers_.get(); }

 private:
  // An executor as a program may write it: it shares its model.
  struct OwningExecutor : StepExecutor {
    OwningExecutor(std::shared_ptr<Model> its_model, int plans_in_flight)
        : model(std::move(its_model)), manual(model.get(), plans_in_flight) {}
    const ModelDescription& description() const override {
      return manual.description();
    }
    int max_plans_in_flight() const override {
      return manual.max_plans_in_flight();
    }
    void Execute(StepPlan plan, Done done) override {
      manual.Execute(std::move(plan), std::move(done));
    }
    std::shared_ptr<Model> model;
    ManualExecutor manual;
  };

  std::unique_ptr<asio::io_context> context_ =
      std::make_unique<asio::io_context>();
  std::unique_ptr<asio::io_context> callers_ =
      std::make_unique<asio::io_context>();
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<TraceSink> trace_ = std::make_shared<CountingSink>();
  std::shared_ptr<ToyModel> model_;
  std::shared_ptr<OwningExecutor> steps_;
  std::unique_ptr<Engine> engine_;
  std::optional<ResultStream> stream_;
};

// The parameter says how many plans are in flight.
class LifetimesTest : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(PlansInFlight, LifetimesTest, ::testing::Values(1, 2));

// Between two ends anything may go on: steps report, contexts run, readers
// read.
TEST_P(LifetimesTest, AnyOrderOfDestructionIsSafeInEveryState) {
  std::mt19937 random(GetParam());
  std::vector<World::Part> order;
  for (int i = 0; i < World::kNumParts; ++i) order.push_back(World::Part(i));
  const int num_rounds = Cases(1000, 200);
  for (int round = 0; round < num_rounds; ++round) {
    World world(GetParam(), MakeTokenizer());
    world.OpenStream();
    world.Generate(world.context());
    world.Generate(world.callers());
    world.Generate(world.callers());  // one waits
    for (int i = random() % 8; i > 0; --i) {
      world.PollBoth(random() % 6);
      if (random() % 3 == 0) world.ReadStream(world.callers());
      if (random() % 3 == 0) world.ReadStream(world.context());
      world.RunStep();
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const World::Part part : order) {
      world.Destroy(part);
      if (random() % 2 == 0) world.RunStep();
      if (random() % 2 == 0) world.PollBoth(random() % 20);
      if (random() % 4 == 0) world.ReadStream(world.callers());
      if (random() % 4 == 0) world.Generate(world.callers());
    }
  }
}

// No thread runs the context while a step completes, and everything else is
// destroyed.
TEST_P(LifetimesTest, AQueuedResultUsesNothingThatIsGone) {
  auto model = std::make_shared<ToyModel>(SmallModel(GetParam()));
  auto steps = std::make_shared<ManualExecutor>(model.get(), GetParam());
  auto tokenizer = MakeTokenizer();
  auto trace = std::make_shared<CountingSink>();
  asio::io_context context;
  EngineOptions options = Validated();
  options.tokenizer = tokenizer;
  options.scheduler.trace = trace;
  auto engine = std::make_unique<Engine>(
      MakeEngine(context.get_executor(), steps, options));
  options = EngineOptions();
  Request request = LongRequest(8);
  request.params.stop = {"xyz"};
  auto answer =
      asio::co_spawn(context, engine->Generate(request), asio::use_future);
  context.poll();
  for (int step = 0; step < 2; ++step) {
    steps->RunStep();
    context.poll();
  }
  const std::weak_ptr<const Tokenizer> tokenizer_life = tokenizer;
  steps->RunStep();
  engine.reset();
  tokenizer.reset();
  trace.reset();
  context.restart();
  context.poll();
  EXPECT_THAT(answer.get(), StatusIs(absl::StatusCode::kCancelled,
                                     "the engine is shut down"));
  while (steps->num_started() > 0) {
    steps->RunStep();
    context.restart();
    context.poll();
  }
  EXPECT_TRUE(tokenizer_life.expired());
  EXPECT_EQ(steps.use_count(), 1);
}

// Runs on a service's thread: blocks until the result of its request.
absl::StatusOr<Result> GenerateAndWait(Engine& engine, const Request& request) {
  asio::io_context context;
  std::future<absl::StatusOr<Result>> answer =
      asio::co_spawn(context, engine.Generate(request), asio::use_future);
  context.run();
  return answer.get();
}

TEST_P(LifetimesTest, ABlockingCallMayHaveAContextOfItsOwn) {
  ToyModel model(SmallModel(GetParam()));
  asio::thread_pool engine_threads(2);
  Engine engine = MakeEngine(
      engine_threads.get_executor(),
      MakeExecutor(&model, 1, {.run_ahead = GetParam() > 1}), Validated(8));
  const auto requests = RandomRequests(20, 7, model.description());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < Cases(250, 50); ++k) {
        const Request& request = requests[(i + k) % requests.size()];
        const auto answer = GenerateAndWait(engine, request);
        if (k >= 20) continue;
        const auto alone = RunAlone(SmallModel(GetParam()), request);
        ASSERT_EQ(answer.status(), alone.status());
        if (!alone.ok()) continue;
        EXPECT_TRUE(SameResult(*answer, *alone));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Destroyed while its coroutine waits, maybe just as it is answered.
TEST_P(LifetimesTest, ACallersContextMayEndWhileItIsAnswered) {
  ToyModel model(SmallModel(GetParam()));
  asio::thread_pool engine_threads(2);
  Engine engine = MakeEngine(
      engine_threads.get_executor(),
      MakeExecutor(&model, 1, {.run_ahead = GetParam() > 1}), Validated(8));
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(i);
      for (int k = 0; k < Cases(400, 80); ++k) {
        asio::io_context context;
        asio::co_spawn(context, engine.Generate(LongRequest(4)),
                       asio::detached);
        asio::co_spawn(
            context,
            [&]() -> asio::awaitable<void> {
              auto stream = co_await engine.Stream(LongRequest(4));
              while (stream.ok()) {
                const auto event = co_await stream->Next();
                if (!event.ok() || !event->has_value()) break;
              }
            },
            asio::detached);
        context.run_for(std::chrono::microseconds(random() % 1500));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  asio::io_context context;
  asio::co_spawn(context, engine.Shutdown(), asio::detached);
  auto stats = asio::co_spawn(context, engine.Stats(), asio::use_future);
  context.run();
  EXPECT_EQ(stats.get().num_running, 0);
}

TEST_P(LifetimesTest, EngineAndExecutorMayGoWhileTheirContextRuns) {
  for (int round = 0; round < Cases(150, 40); ++round) {
    asio::thread_pool callers(1);
    asio::thread_pool threads(2);
    auto model = std::make_shared<ToyModel>(SmallModel(GetParam()));
    auto steps =
        ModelExecutor::Create(model, MakePool(1), {.run_ahead = GetParam() > 1})
            .value();
    auto engine = std::make_unique<Engine>(
        MakeEngine(threads.get_executor(), steps, Validated(2)));
    std::vector<std::future<absl::StatusOr<Result>>> answers;
    for (int i = 0; i < 4; ++i) {
      answers.push_back(asio::co_spawn(
          callers, engine->Generate(LongRequest(200)), asio::use_future));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20 * round));
    switch (round % 3) {
      case 0:
        steps.reset();
        engine.reset();
        break;
      case 1:
        engine.reset();
        steps.reset();
        break;
      case 2:
        model.reset();
        engine.reset();
        break;
    }
    std::vector<absl::Status> statuses;
    for (auto& answer : answers) statuses.push_back(answer.get().status());
    // Abseil counts the owners of a status where ThreadSanitizer does not look.
    threads.join();
    for (const absl::Status& status : statuses) {
      if (status.ok()) continue;
      EXPECT_EQ(status, absl::CancelledError("the engine is shut down"));
    }
  }
}

TEST_P(LifetimesTest, CallersOnOtherContextsGetThatTheContextHasEnded) {
  for (int round = 0; round < Cases(100, 30); ++round) {
    asio::thread_pool callers(2);
    auto threads = std::make_unique<asio::thread_pool>(2);
    auto model = std::make_shared<ToyModel>(SmallModel(GetParam()));
    Engine engine = MakeEngine(
        threads->get_executor(),
        ModelExecutor::Create(model, MakePool(1), {.run_ahead = GetParam() > 1})
            .value(),
        Validated(2));
    std::vector<std::future<absl::StatusOr<Result>>> answers;
    for (int i = 0; i < 4; ++i) {
      answers.push_back(asio::co_spawn(
          callers, engine.Generate(LongRequest(200)), asio::use_future));
    }
    auto read = asio::co_spawn(
        callers,
        [&]() -> asio::awaitable<absl::Status> {
          auto stream = co_await engine.Stream(LongRequest(200));
          if (!stream.ok()) co_return stream.status();
          while (true) {
            const auto event = co_await stream->Next();
            if (!event.ok()) co_return event.status();
            if (!event->has_value()) co_return absl::OkStatus();
          }
        },
        asio::use_future);
    std::this_thread::sleep_for(std::chrono::microseconds(50 * round));
    threads.reset();
    const auto ended = absl::CancelledError("the engine's context has ended");
    for (auto& answer : answers) {
      const absl::Status status = answer.get().status();
      EXPECT_TRUE(status.ok() || status == ended) << status.ToString();
    }
    const absl::Status status = read.get();
    EXPECT_TRUE(status.ok() || status == ended) << status.ToString();
    // And later callers.
    EXPECT_EQ(GenerateAndWait(engine, LongRequest(1)).status(), ended);
    asio::co_spawn(callers, engine.Shutdown(), asio::use_future).get();
  }
}

// Ends its step as soon as it is cancelled.
struct YieldingExecutor : StepExecutor {
  const ModelDescription& description() const override {
    return model.description();
  }
  void Execute(StepPlan plan, Done done) override {
    on_stop.emplace(plan.stop, [done = std::move(done)] {
      done(absl::CancelledError("the step was given up"));
    });
  }
  ToyModel model{SmallModel()};
  std::optional<std::stop_callback<std::function<void()>>> on_stop;
};

TEST(ShutdownTest, RequestsAreToldOfItAndNotOfAStepGivenUp) {
  auto steps = std::make_shared<YieldingExecutor>();
  asio::io_context context;
  auto engine =
      std::make_unique<Engine>(MakeEngine(context.get_executor(), steps));
  auto answer = asio::co_spawn(context, engine->Generate(LongRequest(4)),
                               asio::use_future);
  context.poll();
  ASSERT_TRUE(steps->on_stop.has_value());
  engine.reset();
  context.restart();
  context.poll();
  EXPECT_EQ(answer.get().status(),
            absl::CancelledError("the engine is shut down"));
}

// Fails, and in real programs hangs, if it is destroyed where it reports.
struct ReportingExecutor : StepExecutor {
  ~ReportingExecutor() override { EXPECT_FALSE(is_reporting); }
  const ModelDescription& description() const override {
    return steps->description();
  }
  void Execute(StepPlan plan, Done done) override {
    steps->Execute(std::move(plan), [done = std::move(done)](auto result) {
      is_reporting = true;
      done(std::move(result));
      std::this_thread::yield();
      is_reporting = false;
    });
  }
  static inline thread_local bool is_reporting = false;
  std::shared_ptr<ModelExecutor> steps;
};

TEST_P(LifetimesTest, AnExecutorIsLetGoOfOnlyByThreadsThatAreNotItsOwn) {
  for (int round = 0; round < Cases(200, 40); ++round) {
    ToyModel model(SmallModel(1));  // the context's end uses it
    asio::thread_pool threads(1);
    auto steps = std::make_shared<ReportingExecutor>();
    steps->steps = MakeExecutor(&model);
    auto engine = std::make_unique<Engine>(
        MakeEngine(threads.get_executor(), std::move(steps), Validated(2)));
    auto answer = asio::co_spawn(threads, engine->Generate(LongRequest(5)),
                                 asio::use_future);
    if (round % 2 == 0) answer.wait();
    engine.reset();
    threads.join();
  }
}

}  // namespace
}  // namespace espalier

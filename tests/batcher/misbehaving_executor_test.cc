// Executors that break their contract: requests get an error, no page stays
// held, and the engine keeps running.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "batcher/engine.h"
#include "executor/host/model_executor.h"
#include "tests/batcher/manual_executor.h"
#include "tests/batcher/toy_requests.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

namespace asio = boost::asio;
using namespace ::espalier::testing;  // NOLINT
using ::testing::HasSubstr;

enum class Rudeness {
  kThrows,
  kThrowsANumber,
  kAnswersAndThrows,
  kDropsTheAnswer,
  kAnswersTwice,
  kFails,
};

// Misbehaves at one step, counted from 0; otherwise acts as a ModelExecutor.
class RudeExecutor : public StepExecutor {
 public:
  RudeExecutor(Model* model, const ModelExecutorOptions& options,
               Rudeness rudeness, int rude_step)
      : steps_(MakeExecutor(model, 1, options)),
        rudeness_(rudeness),
        rude_step_(rude_step) {}

  const ModelDescription& description() const override {
    return steps_->description();
  }
  int max_plans_in_flight() const override {
    return steps_->max_plans_in_flight();
  }
  void Execute(StepPlan plan, Done done) override {
    if (num_steps_++ == rude_step_) return BeRude(std::move(plan), done);
    steps_->Execute(std::move(plan), std::move(done));
  }

  bool was_rude() const { return num_steps_ > rude_step_; }

 private:
  void BeRude(StepPlan plan, const Done& done) {
    switch (rudeness_) {
      case Rudeness::kThrows:
        throw std::runtime_error("out of order");
      case Rudeness::kThrowsANumber:
        throw 7;
      case Rudeness::kAnswersAndThrows:
        done(absl::DataLossError("out of order"));
        throw std::runtime_error("out of order");
      case Rudeness::kDropsTheAnswer:
        return steps_->Execute(std::move(plan), [done](const auto&) {});
      case Rudeness::kAnswersTwice:
        return steps_->Execute(std::move(plan),
                               [done](absl::StatusOr<StepResult> result) {
                                 done(result);
                                 done(std::move(result));
                               });
      case Rudeness::kFails:
        return steps_->Execute(std::move(plan), [done](const auto&) {
          done(absl::DataLossError("out of order"));
        });
    }
  }

  const std::shared_ptr<ModelExecutor> steps_;
  const Rudeness rudeness_;
  const int rude_step_;
  int num_steps_ = 0;
};

void Speculate(std::vector<Request>* requests) {
  for (Request& request : *requests) {
    if (!CanSpeculate(request.params)) continue;
    request.params.speculate = {.method = SpeculationMethod::kDraft,
                                .num_tokens = 3,
                                .mode = SpeculationMode::kCoupled,
                                .always_drafts = true};
  }
}

// Submits requests, lets them end, and submits some more.
void RunWithRudeness(Rudeness rudeness, int rude_step, int plans_in_flight,
                     bool drafts) {
  ToyModelOptions options = SmallModel(plans_in_flight);
  // Known by its pages alone, it misses nothing of a plan that it never saw.
  options.memory = ToyModelOptions::Memory::kPages;
  options.has_shareable_pages = drafts;
  ToyModel model(options);
  ModelExecutorOptions executor = {.run_ahead = plans_in_flight > 1};
  if (drafts) executor.draft_model = std::make_shared<ToyModel>(options);
  const auto steps =
      std::make_shared<RudeExecutor>(&model, executor, rudeness, rude_step);
  asio::io_context context;  // whose end uses steps
  Engine engine = MakeEngine(context.get_executor(), steps, Validated(3));
  int num_errors = 0;
  for (int round = 0; round < 2; ++round) {
    const auto alone_requests =
        RandomRequests(5, 31 + round, model.description());
    std::vector<Request> requests = alone_requests;
    if (drafts) Speculate(&requests);
    std::vector<std::future<absl::StatusOr<Result>>> answers;
    for (const Request& request : requests) {
      answers.push_back(
          asio::co_spawn(context, engine.Generate(request), asio::use_future));
    }
    context.restart();
    context.run();
    for (size_t i = 0; i < requests.size(); ++i) {
      const absl::StatusOr<Result> answer = answers[i].get();
      const absl::StatusOr<Result> alone = RunAlone(options, alone_requests[i]);
      if (answer.ok() && alone.ok()) {
        EXPECT_TRUE(drafts ? SameHypotheses(*answer, *alone)
                           : SameResult(*answer, *alone))
            << i;
      }
      if (answer.status() == alone.status()) continue;
      ++num_errors;
      EXPECT_THAT(answer.status().ToString(),
                  ::testing::AnyOf(HasSubstr("the step executor threw"),
                                   HasSubstr("dropped a step"),
                                   HasSubstr("out of order")));
    }
    if (round == 1) continue;
    // A step may have had nothing but the names of ended sequences.
    EXPECT_TRUE(steps->was_rude());
    EXPECT_LE(num_errors, rudeness == Rudeness::kAnswersTwice ? 0 : 3);
  }
  std::future<EngineStats> stats =
      asio::co_spawn(context, engine.Stats(), asio::use_future);
  context.restart();
  context.run();
  EXPECT_EQ(stats.get().num_pages_held, 0);
}

class RudeExecutorTest : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(PlansInFlight, RudeExecutorTest,
                         ::testing::Values(1, 2));

// And a draft model beside it changes nothing of that.
TEST_P(RudeExecutorTest, EndsRequestsOfThatStepAndNoOther) {
  for (const Rudeness rudeness :
       {Rudeness::kThrows, Rudeness::kThrowsANumber,
        Rudeness::kAnswersAndThrows, Rudeness::kDropsTheAnswer,
        Rudeness::kAnswersTwice, Rudeness::kFails}) {
    for (int i = 0; i < 2 * 6; ++i) {
      const int step = i / 2;
      const bool drafts = i % 2 != 0;
      SCOPED_TRACE(::testing::Message()
                   << static_cast<int>(rudeness) << " at " << step
                   << (drafts ? ", with a draft model" : ""));
      RunWithRudeness(rudeness, step, GetParam(), drafts);
    }
  }
}

// The context still has work of an engine that is gone.
TEST_P(RudeExecutorTest, AnExecutorMayGoAfterItsEngineWhateverIsQueued) {
  for (int moment = 0; moment < 8; ++moment) {
    ToyModel model(SmallModel(GetParam()));
    asio::io_context context;
    auto steps = std::make_shared<ManualExecutor>(&model, GetParam());
    auto engine = std::make_unique<Engine>(
        MakeEngine(context.get_executor(), steps, Validated()));
    std::vector<std::future<absl::StatusOr<Result>>> answers;
    for (const Request& request : RandomRequests(3, 5, model.description())) {
      answers.push_back(
          asio::co_spawn(context, engine->Generate(request), asio::use_future));
    }
    for (int i = 0; i < moment; ++i) context.poll_one();
    engine.reset();
    steps.reset();
    context.restart();
    context.poll();  // a step in flight that no thread runs would be awaited
    for (auto& answer : answers) {
      EXPECT_THAT(answer.get(), StatusIs(absl::StatusCode::kCancelled,
                                         "the engine is shut down"));
    }
  }
}

// The model throws, and its executor reports the error.
TEST(RudeModelTest, WhatItThrowsIsTheErrorOfItsStep) {
  class Thrower : public ToyModel {
   public:
    using ToyModel::ToyModel;
    absl::Status Forward(const StepPlan&, std::span<float>) override {
      if (throws_number) throw 7;
      throw std::runtime_error("no logits today");
    }
    bool throws_number = false;
  };
  for (const bool throws_number : {false, true}) {
    Thrower model{ToyModelOptions()};
    model.throws_number = throws_number;
    asio::io_context context;
    Engine engine =
        MakeEngine(context.get_executor(), MakeExecutor(&model), Validated());
    std::future<absl::StatusOr<Result>> answer = asio::co_spawn(
        context, engine.Generate({{1, 2}, {}}), asio::use_future);
    context.run();
    EXPECT_THAT(answer.get(), StatusIs(absl::StatusCode::kInternal,
                                       HasSubstr("the model threw")));
  }
}

}  // namespace
}  // namespace espalier

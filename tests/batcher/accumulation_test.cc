// No memory accumulates: after a hundred thousand requests that end in every
// way, an engine holds as much as after the first thousands.
#include <gtest/gtest.h>
#include <malloc.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "batcher/engine.h"
#include "executor/host/persistent_groups.h"
#include "tests/batcher/manual_executor.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"

namespace espalier {
namespace {

namespace asio = boost::asio;
using namespace ::espalier::testing;  // NOLINT

// Runs plans where they are given to it; some fail.
class FailingExecutor : public StepExecutor {
 public:
  explicit FailingExecutor(Model* model)
      : model_(model), groups_(model->description().page_size) {}

  const ModelDescription& description() const override {
    return model_->description();
  }
  int max_plans_in_flight() const override { return 2; }
  void Execute(StepPlan plan, Done done) override {
    groups_.ExpandContinuations(&plan);
    absl::StatusOr<StepResult> result = RunPlan(*model_, plan);
    if (random_() % 50 == 0) result = absl::DataLossError("the device is gone");
    if (result.ok()) {
      groups_.Advance(*result);
    } else {
      groups_.DiscardFailedStep();
    }
    done(std::move(result));
  }
  int num_groups() const { return groups_.num_groups(); }

 private:
  Model* const model_;
  PersistentGroups groups_;
  std::mt19937 random_{3};
};

class Crowd {
 public:
  Crowd() {
    EngineOptions options;
    options.scheduler.max_running = 16;
    options.max_waiting = 900;
    options.max_waiting_tokens = 4200;
    engine_ = std::make_unique<Engine>(
        MakeEngine(context_.get_executor(), &steps_, options));
  }

  // Requests that arrive together, until all have ended.
  void Run(int count) {
    std::vector<std::unique_ptr<asio::cancellation_signal>> signals;
    int num_ended = 0;
    for (int i = 0; i < count; ++i) {
      signals.push_back(std::make_unique<asio::cancellation_signal>());
      asio::co_spawn(
          context_, engine_->Generate(AnyRequest()),
          asio::bind_cancellation_slot(
              signals.back()->slot(),
              [&](std::exception_ptr, const absl::StatusOr<Result>& result) {
                ++num_ended;
                Count(result);
              }));
    }
    context_.restart();
    while (num_ended < count) {
      context_.run_one();
      if (random_() % 20 > 0) continue;
      signals[random_() % count]->emit(asio::cancellation_type::terminal);
    }
    context_.run();
  }

  void ExpectNothingHeld() {
    std::future<EngineStats> future =
        asio::co_spawn(context_, engine_->Stats(), asio::use_future);
    context_.restart();
    context_.run();
    const EngineStats stats = future.get();
    EXPECT_EQ(stats.num_waiting, 0);
    EXPECT_EQ(stats.num_running, 0);
    EXPECT_EQ(stats.num_preempted, 0);
    EXPECT_EQ(stats.num_pages_held, 0);
    EXPECT_LE(stats.num_pages_idle, model_.description().num_pages);
    EXPECT_EQ(steps_.num_groups(), 0);
  }

  // Count of each error code, and of each finish reason of the best hypothesis.
  std::map<std::string, int> ends;

 private:
  Request AnyRequest() {
    Request request;
    for (int i = random_() % 8; i >= 0; --i) {
      request.prompt_tokens.push_back(1 + random_() % 10);
    }
    GenerationParams& params = request.params;
    params.max_new_tokens = 1 + random_() % 6;
    params.num_beams = random_() % 4 == 0 ? 3 : 1;
    if (random_() % 8 == 0) params.max_new_tokens = 100;  // too many pages
    if (random_() % 3 == 0) params.deadline_ms = 1 + random_() % 8;
    params.priority = random_() % 3;
    params.tenant = std::to_string(num_requests_++ / 10);
    params.cache_salt = std::to_string(random_() % 5);
    return request;
  }
  void Count(const absl::StatusOr<Result>& result) {
    const std::string end =
        result.ok() ? std::string(NameOf(result->hypotheses[0].finish_reason))
                    : CodeName(result.status().code());
    ++ends[end];
  }

  static ToyModelOptions Options() {
    ToyModelOptions options;
    options.eos_boost = 1;
    options.num_pages = 30;
    return options;
  }

  ToyModel model_{Options()};
  FailingExecutor steps_{&model_};
  asio::io_context context_{1};
  std::unique_ptr<Engine> engine_;
  std::mt19937 random_{7};
  int64_t num_requests_ = 0;
};

// Bytes of the heap and of large blocks that are mapped separately.
size_t NumBytesInUse() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(AccumulationTest, WhatHasEndedLeavesNothing) {
  Crowd crowd;
  const int num_rounds = Cases(100, 10);
  for (int round = 0; round < num_rounds / 5; ++round) crowd.Run(1000);
  crowd.ExpectNothingHeld();
  const size_t before = NumBytesInUse();
  for (int round = num_rounds / 5; round < num_rounds; ++round) {
    crowd.Run(1000);
  }
  crowd.ExpectNothingHeld();
  // A byte a request would be 80,000. Containers may have grown to their most.
  EXPECT_LE(NumBytesInUse(), before + 40'000);
  for (const char* end : {"eos", "length", "DEADLINE_EXCEEDED", "CANCELLED",
                          "DATA_LOSS", "RESOURCE_EXHAUSTED"}) {
    EXPECT_GT(crowd.ends[end], num_rounds) << end;
  }
}

}  // namespace
}  // namespace espalier

// Statistics and events of a generator.
#include <atomic>

#include "espalier/trace.h"
#include "tests/espalier/generator_fixture.h"

namespace espalier::testing {
namespace {

// Counts the trace events, and the ended requests.
class EventCounter : public TraceSink {
 public:
  void On(const TraceEvent& event) override {
    ++num_events_;
    if (std::holds_alternative<TraceEnd>(event)) ++num_ended_;
  }
  int num_events() const { return num_events_; }
  int num_ended() const { return num_ended_; }

 private:
  std::atomic<int> num_events_ = 0;
  std::atomic<int> num_ended_ = 0;
};

class GeneratorStatsTest : public GeneratorFixture {};

TEST_F(GeneratorStatsTest, OfNothingDone) {
  Make();
  const GeneratorStats stats = generator_->Stats();
  EXPECT_EQ(stats.num_open, 0);
  EXPECT_EQ(stats.num_steps, 0);
  EXPECT_EQ(stats.num_pages, model_options_.num_pages);
  EXPECT_EQ(stats.step_time, absl::ZeroDuration());
}

TEST_F(GeneratorStatsTest, WhileAStepRunsWhatRunsAndWaitsIsTold) {
  Make({.num_threads = 1, .max_running = 2, .max_waiting = 1});
  model_->Hold(true);
  std::vector<std::future<absl::StatusOr<Generation>>> answers;
  for (int i = 0; i < 4; ++i) {
    answers.push_back(generator_->GenerateAsync(Simple()));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(answers.back().get().status()));
  answers.pop_back();
  model_->AwaitStep();
  const GeneratorStats held = AwaitRequests(3);
  EXPECT_GE(held.num_running, 1);  // the second comes with the next plan
  EXPECT_LE(held.num_running, 2);
  EXPECT_EQ(held.num_open, 3);
  EXPECT_EQ(held.num_refused, 1);
  EXPECT_EQ(held.num_generated_tokens, 0);
  EXPECT_GT(held.num_pages_held, 0);
  EXPECT_LE(held.num_pages_held, held.num_pages);
  model_->Hold(false);
  for (auto& answer : answers) EXPECT_OK(answer.get());
}

TEST_F(GeneratorStatsTest, ATraceHasWhatEndedBeforeItIsAnswered) {
  const auto events = std::make_shared<EventCounter>();
  Make({.num_threads = 1, .trace = events});
  for (int i = 1; i <= 3; ++i) {
    ASSERT_OK(generator_->Generate(Simple(2, 5)));
    EXPECT_EQ(events->num_ended(), i);
  }
  EXPECT_GT(events->num_events(), 3 * 2 * 5);
}

TEST_F(GeneratorStatsTest, AfterwardsWhatWasDoneIsToldAlsoAfterShutdown) {
  Make();
  absl::StatusOr<Generation> answer = generator_->Generate(Simple(2, 5));
  ASSERT_OK(answer);
  int64_t num_generated = 0;
  for (const Hypothesis& hypothesis : answer->hypotheses) {
    num_generated += std::ssize(hypothesis.tokens);
  }
  for (const bool is_shut_down : {false, true}) {
    SCOPED_TRACE(is_shut_down);
    if (is_shut_down) generator_->Shutdown();
    ExpectNothingHeld();
    const GeneratorStats stats = generator_->Stats();
    EXPECT_EQ(stats.num_open, 0);
    EXPECT_EQ(stats.num_prompt_tokens, 3);
    EXPECT_EQ(stats.num_generated_tokens, num_generated);
    EXPECT_GE(stats.num_steps, 5);
    EXPECT_GT(stats.peak_pages, 0);
    EXPECT_GT(stats.forward_time, absl::ZeroDuration());
    EXPECT_GT(stats.select_time, absl::ZeroDuration());
    EXPECT_GT(stats.plan_time, absl::ZeroDuration());
    EXPECT_GT(stats.advance_time, absl::ZeroDuration());
    EXPECT_GT(stats.step_time, absl::ZeroDuration());
  }
}

TEST_F(GeneratorStatsTest, WhatWaitsForItsCallbackIsOpen) {
  Make();
  std::promise<void> begun;
  std::promise<void> go_on;
  std::promise<void> ended;
  generator_->GenerateAsync(Simple(), [&](auto) {
    begun.set_value();
    go_on.get_future().wait();
  });
  begun.get_future().wait();
  generator_->GenerateAsync(Simple(), [&](auto) { ended.set_value(); });
  EXPECT_EQ(AwaitRequests(0).num_running, 0);
  EXPECT_EQ(generator_->Stats().num_open, 1);
  go_on.set_value();
  ended.get_future().wait();
  EXPECT_EQ(generator_->Stats().num_open, 0);
}

TEST_F(GeneratorStatsTest, AnyThreadMayAskWhileOthersGenerate) {
  Make();
  std::atomic<bool> is_over = false;
  std::vector<std::jthread> watchers;
  for (int i = 0; i < 3; ++i) {
    watchers.emplace_back([&] {
      int64_t num_steps = 0;
      while (!is_over) {
        const GeneratorStats stats = generator_->Stats();
        EXPECT_GE(stats.num_steps, num_steps);
        num_steps = stats.num_steps;
      }
    });
  }
  // Works within a generator's callback, too.
  generator_
      ->Stream(Simple(),
               [&](const StreamEvent&) {
                 EXPECT_EQ(generator_->Stats().num_open, 1);
                 return false;
               })
      .IgnoreError();
  std::promise<int64_t> of_callback;
  generator_->GenerateAsync(Simple(), [&](auto) {
    of_callback.set_value(generator_->Stats().num_steps);
  });
  EXPECT_GT(of_callback.get_future().get(), 0);
  is_over = true;
}

}  // namespace
}  // namespace espalier::testing

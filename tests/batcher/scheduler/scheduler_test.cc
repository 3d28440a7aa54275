#include "batcher/scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "tests/batcher/manual_executor.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::ElementsAre;
using Memory = ToyModelOptions::Memory;

// Answers by request, in the order in which requests were submitted.
class OrderedAnswers {
 public:
  explicit OrderedAnswers(size_t count) : answers_(count) {}

  void Submit(Scheduler& scheduler, int i, const Request& request) {
    scheduler.Submit(
        RequestId{i}, PreparedRequest(request), [this, i](auto result) {
          ASSERT_FALSE(answers_[i].has_value()) << "answered twice";
          answers_[i] = std::move(result);
          order_.push_back(i);
        });
  }
  void SubmitAll(Scheduler& scheduler, const std::vector<Request>& requests) {
    for (size_t i = 0; i < requests.size(); ++i) {
      Submit(scheduler, static_cast<int>(i), requests[i]);
    }
  }

  bool has(int i) const { return answers_[i].has_value(); }
  const absl::StatusOr<Result>& operator[](int i) const { return *answers_[i]; }
  const std::vector<int>& order() const { return order_; }

 private:
  std::vector<std::optional<absl::StatusOr<Result>>> answers_;
  std::vector<int> order_;
};

ToyModelOptions CrampedModel() {
  ToyModelOptions options;
  options.eos_boost = 2;
  options.num_pages = 400;
  return options;
}

TEST(SchedulerTest, AloneOrTogetherIsTheSameToTheBit) {
  for (const Memory memory : {Memory::kPages, Memory::kSequences}) {
    for (const int page_size : {1, 3, 16}) {
      for (const int max_step_tokens : {1, 7, 500}) {
        ToyModelOptions options = CrampedModel();
        options.memory = memory;
        options.page_size = page_size;
        ToyModel model(options);
        const auto requests = RandomRequests(30, 5, model.description());
        Scheduler scheduler(model.description(),
                            {.max_running = 20,
                             .max_step_tokens = max_step_tokens,
                             .validate_steps = true});
        OrderedAnswers answers(requests.size());
        // They arrive two at a time, while others run.
        RunToEnd(scheduler, model, [&](int step) {
          for (int i = 2 * step; i < 2 * step + 2 && i < 30; ++i) {
            answers.Submit(scheduler, i, requests[i]);
          }
        });
        for (size_t i = 0; i < requests.size(); ++i) {
          ASSERT_OK_AND_ASSIGN(const Result alone,
                               RunAlone(CrampedModel(), requests[i]));
          ASSERT_OK(answers[i]);
          EXPECT_TRUE(SameResult(*answers[i], alone)) << i;
        }
        ExpectNothingHeld(scheduler);
        EXPECT_EQ(model.num_sequences(), 0);
      }
    }
  }
}

TEST(SchedulerTest, CancellingAnyRequestAtAnyMomentLeavesTheOthersAsTheyWere) {
  for (const Memory memory : {Memory::kPages, Memory::kSequences}) {
    ToyModelOptions options = CrampedModel();
    options.memory = memory;
    const auto requests = RandomRequests(6, 7, ToyModel(options).description());
    for (int moment = 0; moment < 30; ++moment) {
      ToyModel model(options);
      // Room for three: some wait, some run.
      Scheduler scheduler(
          model.description(),
          {.max_running = 3, .max_step_tokens = 20, .validate_steps = true});
      OrderedAnswers answers(requests.size());
      answers.SubmitAll(scheduler, requests);
      const int victim = moment % 6;
      // Even moments: between steps. Odd ones: during a step.
      for (int step = 0;; ++step) {
        if (2 * step == moment) {
          scheduler.Cancel(RequestId{victim}, absl::CancelledError("stop"));
        }
        const StepPlan plan = scheduler.Plan();
        if (plan.empty() && plan.finished.empty()) break;
        absl::StatusOr<StepResult> result = RunPlan(model, plan);
        if (2 * step + 1 == moment) {
          scheduler.Cancel(RequestId{victim}, absl::CancelledError("stop"));
        }
        scheduler.Advance(std::move(result));
      }
      for (int i = 0; i < 6; ++i) {
        ASSERT_TRUE(answers.has(i)) << i;
        if (i == victim && !answers[i].ok()) {
          EXPECT_THAT(answers[i],
                      StatusIs(absl::StatusCode::kCancelled, "stop"));
          continue;
        }
        ASSERT_OK_AND_ASSIGN(const Result alone,
                             RunAlone(options, requests[i]));
        ASSERT_OK(answers[i]);
        EXPECT_TRUE(SameResult(*answers[i], alone));
      }
      ExpectNothingHeld(scheduler);
      EXPECT_EQ(model.num_sequences(), 0);
    }
  }
}

TEST(SchedulerTest, AStepFeedsNoMoreThanItsBudget) {
  ToyModel model(CrampedModel());
  const auto requests = RandomRequests(40, 11, model.description());
  for (const int budget : {5, 16, 64}) {
    Scheduler scheduler(model.description(),
                        {.max_step_tokens = budget, .validate_steps = true});
    OrderedAnswers answers(requests.size());
    answers.SubmitAll(scheduler, requests);
    size_t most = 0;
    while (true) {
      const StepPlan plan = scheduler.Plan();
      if (plan.empty()) break;
      most = std::max(most, plan.tokens.size());
      scheduler.Advance(RunPlan(model, plan));
    }
    EXPECT_LE(most, budget);
    EXPECT_GT(most, budget / 2);
  }
}

Request OfSizes(const ToyModel& model, int num_prompt_tokens, int num_beams,
                int max_new_tokens) {
  Request request{std::vector<TokenId>(num_prompt_tokens, 1), {}};
  request.params.num_beams = num_beams;
  request.params.max_new_tokens = max_new_tokens;
  EXPECT_OK(ValidateRequest(model.description(), &request));
  return request;
}

TEST(SchedulerTest, AQuarterOfAStepRunsBesideAGroupThatIsWiderThanIt) {
  constexpr int kMaxStepTokens = 8;
  ToyModelOptions options = CrampedModel();
  options.eos_token_ids = {};
  ToyModel model(options);
  const auto request = [&](auto... sizes) { return OfSizes(model, sizes...); };
  const std::vector<Request> requests = {request(4, 9, 60), request(30, 1, 5),
                                         request(5, 1, 4),  request(6, 2, 3),
                                         request(3, 3, 5),  request(2, 1, 1)};
  Scheduler scheduler(model.description(), {.max_step_tokens = kMaxStepTokens,
                                            .validate_steps = true});
  OrderedAnswers answers(requests.size());
  answers.SubmitAll(scheduler, requests);
  size_t widest = 0;
  while (true) {
    const StepPlan plan = scheduler.Plan();
    if (plan.empty()) break;
    widest = std::max(widest, plan.tokens.size());
    scheduler.Advance(RunPlan(model, plan));
  }
  // Two sequences run at a time; three wait for their end, and later requests
  // wait behind these.
  EXPECT_EQ(widest, 9u + kMaxStepTokens / 4);
  EXPECT_EQ(std::set(answers.order().begin(), answers.order().begin() + 3),
            (std::set{1, 2, 3}));
  EXPECT_EQ(answers.order()[3], 0);
  for (int i = 0; i < std::ssize(requests); ++i) {
    ASSERT_OK_AND_ASSIGN(const Result alone, RunAlone(options, requests[i]));
    EXPECT_TRUE(SameResult(*answers[i], alone));
  }
}

// Also where the share of prompts is less than a token of a step.
TEST(SchedulerTest, AShareOfPromptsIsATokenAtLeast) {
  ToyModelOptions options = CrampedModel();
  options.eos_token_ids = {};
  ToyModel model(options);
  const std::vector<Request> requests = {OfSizes(model, 2, 9, 60),
                                         OfSizes(model, 7, 1, 3)};
  for (const int max_step_tokens : {1, 2, 3, 8}) {
    for (const double prefill_share : {0.0, 0.01, 0.25}) {
      Scheduler scheduler(model.description(),
                          {.max_step_tokens = max_step_tokens,
                           .prefill_share = prefill_share,
                           .validate_steps = true});
      OrderedAnswers answers(requests.size());
      answers.SubmitAll(scheduler, requests);
      RunToEnd(scheduler, model);
      EXPECT_EQ(answers.order().front(), prefill_share > 0 ? 1 : 0)
          << max_step_tokens << " " << prefill_share;
    }
  }
}

// A narrow request that would fit waits behind a wide one that does not.
TEST(SchedulerTest, RequestsWaitForPagesFirstComeFirstServed) {
  ToyModelOptions options = CrampedModel();
  options.eos_token_ids = {};
  options.page_size = 4;
  options.num_pages = 44;
  ToyModel model(options);
  const auto request = [&](auto... sizes) { return OfSizes(model, sizes...); };
  // The first holds 30 pages and takes 4 more soon: there is no room for the 13
  // that the second begins with, and for the 2 of the third.
  const std::vector<Request> requests = {request(120, 4, 10),
                                         request(3, 12, 10), request(3, 1, 5)};
  Scheduler scheduler(model.description(), {.validate_steps = true});
  OrderedAnswers answers(requests.size());
  answers.SubmitAll(scheduler, requests);
  scheduler.Advance(RunPlan(model, scheduler.Plan()));
  StepPlan plan = scheduler.Plan();
  EXPECT_EQ(scheduler.num_running(), 1);
  EXPECT_EQ(scheduler.num_waiting(), 2);
  scheduler.Advance(RunPlan(model, plan));
  RunToEnd(scheduler, model);
  EXPECT_EQ(answers.order().front(), 0);
  for (int i = 0; i < 3; ++i) EXPECT_OK(answers[i]);
}

TEST(SchedulerTest, FiguresTellPromptTokensFromBeams) {
  ToyModelOptions options = CrampedModel();
  options.eos_token_ids = {};
  ToyModel model(options);
  Request request{{1, 2, 3, 4, 5}, {}};
  request.params.num_beams = 3;
  request.params.max_new_tokens = 4;
  ASSERT_OK(ValidateRequest(model.description(), &request));
  for (const int budget : {1, 2, 4, 100}) {
    Scheduler scheduler(model.description(),
                        {.max_step_tokens = budget, .validate_steps = true});
    OrderedAnswers answers(1);
    answers.Submit(scheduler, 0, request);
    RunToEnd(scheduler, model);
    EXPECT_EQ(scheduler.stats().num_prompt_tokens, 5);
    EXPECT_EQ(scheduler.stats().num_decode_rows, 3 * 3);
    EXPECT_EQ(scheduler.stats().num_generated_tokens, 4);
  }
}

TEST(SchedulerTest, AdmissionIsFirstComeFirstServed) {
  ToyModel model(CrampedModel());
  auto requests = RandomRequests(8, 17, model.description());
  Scheduler scheduler(model.description(),
                      {.max_running = 1, .validate_steps = true});
  OrderedAnswers answers(requests.size());
  answers.SubmitAll(scheduler, requests);
  RunToEnd(scheduler, model);
  EXPECT_THAT(answers.order(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(SchedulerTest, WithoutPagesRequestsWaitAndAllComeThrough) {
  ToyModelOptions options = CrampedModel();
  ToyModel unlimited(options);
  const auto requests = RandomRequests(20, 19, unlimited.description());
  int64_t most = 0;
  for (const Request& request : requests) {
    most = std::max(most, GroupPages::WorstCase(request, 3));
  }
  options.num_pages = static_cast<int>(most);  // the widest fits alone
  ToyModel model(options);
  Scheduler scheduler(model.description(), {.validate_steps = true});
  OrderedAnswers answers(requests.size());
  answers.SubmitAll(scheduler, requests);
  RunToEnd(scheduler, model);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_OK_AND_ASSIGN(const Result alone,
                         RunAlone(CrampedModel(), requests[i]));
    ASSERT_OK(answers[i]);
    EXPECT_TRUE(SameResult(*answers[i], alone));
  }
  ExpectNothingHeld(scheduler);
}

TEST(SchedulerTest, WhatCanNeverFitIsRefusedAtOnceWithTheFigures) {
  ToyModelOptions options = CrampedModel();
  options.num_pages = 4;
  ToyModel model(options);
  Request request;
  request.prompt_tokens = {1, 2, 3, 4};
  request.params.num_beams = 3;
  request.params.max_new_tokens = 4;
  ASSERT_OK(ValidateRequest(model.description(), &request));
  Scheduler scheduler(model.description(), {.validate_steps = true});
  OrderedAnswers answers(1);
  answers.Submit(scheduler, 0, request);
  ASSERT_TRUE(answers.has(0));
  EXPECT_THAT(answers[0],
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "the request can never fit: it needs 7 pages of 3 "
                       "tokens at worst (4 prompt tokens, num_beams 3, "
                       "max_new_tokens 4), there are 4; lower num_beams or "
                       "max_new_tokens"));
  EXPECT_TRUE(answers[0].status().GetPayload(kTooFewPages).has_value());
  EXPECT_TRUE(scheduler.Plan().empty());
}

// Nothing is advised that cannot help.
TEST(SchedulerTest, WhatCanNeverFitIsToldWhatWouldHelp) {
  ToyModelOptions options = CrampedModel();
  options.num_pages = 4;
  ToyModel model(options);
  const auto advice_for = [&](int num_prompt_tokens, int num_beams,
                              int max_new_tokens) {
    Request request;
    request.prompt_tokens.assign(num_prompt_tokens, 1);
    request.params.num_beams = num_beams;
    request.params.max_new_tokens = max_new_tokens;
    EXPECT_OK(ValidateRequest(model.description(), &request));
    Scheduler scheduler(model.description(), {.validate_steps = true});
    OrderedAnswers answers(1);
    answers.Submit(scheduler, 0, request);
    const std::string message(answers[0].status().message());
    return message.substr(message.rfind("; ") + 2);
  };
  EXPECT_EQ(advice_for(13, 1, 1), "shorten the prompt");
  EXPECT_EQ(advice_for(13, 3, 4), "shorten the prompt");
  EXPECT_EQ(advice_for(4, 1, 10), "lower max_new_tokens");
  EXPECT_EQ(advice_for(4, 3, 4), "lower num_beams or max_new_tokens");
}

TEST(SchedulerTest, AFailedStepEndsItsRequestsAlone) {
  ToyModel model(CrampedModel());
  const auto requests = RandomRequests(9, 23, model.description());
  for (int failing_step = 0; failing_step < 12; ++failing_step) {
    Scheduler scheduler(model.description(),
                        {.max_running = 3, .validate_steps = true});
    OrderedAnswers answers(requests.size());
    answers.SubmitAll(scheduler, requests);
    int num_in_step = 0;
    for (int step = 0;; ++step) {
      const StepPlan plan = scheduler.Plan();
      if (plan.empty()) break;
      absl::StatusOr<StepResult> result = RunPlan(model, plan);
      if (step == failing_step) {
        num_in_step = scheduler.num_running();
        result = absl::InternalError("the device is gone");
      }
      scheduler.Advance(std::move(result));
    }
    int num_failed = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(answers.has(i));
      if (!answers[i].ok()) {
        ++num_failed;
        EXPECT_THAT(answers[i], StatusIs(absl::StatusCode::kInternal,
                                         "the device is gone"));
        continue;
      }
      ASSERT_OK_AND_ASSIGN(const Result alone,
                           RunAlone(CrampedModel(), requests[i]));
      EXPECT_TRUE(SameResult(*answers[i], alone));
    }
    EXPECT_EQ(num_failed, num_in_step);
    EXPECT_GT(num_failed, 0);
    ExpectNothingHeld(scheduler);
  }
}

// A search for each among all that wait took minutes.
TEST(SchedulerTest, HoweverManyWaitEachCanBeCancelledNewestFirst) {
  const int num_waiting = testing::Cases(200'000, 20'000);
  ToyModel model(SmallModel());
  Scheduler scheduler(model.description(), {.max_running = 1});
  Request request{{1, 2}, {}};
  ASSERT_OK(ValidateRequest(model.description(), &request));
  std::vector<int> cancelled;
  for (int i = 0; i <= num_waiting; ++i) {
    scheduler.Submit(RequestId{i}, PreparedRequest(request),
                     [&, i](auto result) {
                       EXPECT_FALSE(result.ok());
                       cancelled.push_back(i);
                     });
  }
  scheduler.Plan();  // 0 runs
  for (int i = num_waiting; i >= 0; --i) {
    scheduler.Cancel(RequestId{i}, absl::CancelledError("stop"));
  }
  ASSERT_EQ(cancelled.size(), num_waiting + 1);
  EXPECT_TRUE(std::ranges::is_sorted(cancelled, std::greater()));
  ExpectNothingHeld(scheduler);
}

TEST(SchedulerTest, CancelAllAnswersEveryone) {
  ToyModel model(CrampedModel());
  const auto requests = RandomRequests(9, 29, model.description());
  Scheduler scheduler(model.description(),
                      {.max_running = 3, .validate_steps = true});
  OrderedAnswers answers(requests.size());
  answers.SubmitAll(scheduler, requests);
  scheduler.Advance(RunPlan(model, scheduler.Plan()));
  scheduler.CancelAll(absl::CancelledError("closing"));
  for (size_t i = 0; i < requests.size(); ++i) ASSERT_TRUE(answers.has(i));
  ExpectNothingHeld(scheduler);
}

// Measures what sharing saves: a 4-beam search with a prompt of 64 tokens and
// 32 new ones, on pages of 16.
TEST(SchedulerTest, BeamsHoldAtMost55PercentOfUnsharedPages) {
  ToyModelOptions options;
  options.eos_token_ids = {};  // 32 tokens, whatever comes
  options.page_size = 16;
  ToyModel model(options);
  Request request;
  request.prompt_tokens.assign(64, 3);
  request.params.num_beams = 4;
  request.params.max_new_tokens = 32;
  ASSERT_OK(ValidateRequest(model.description(), &request));
  Scheduler scheduler(model.description(), {.validate_steps = true});
  OrderedAnswers answers(1);
  answers.Submit(scheduler, 0, request);
  RunToEnd(scheduler, model);
  ASSERT_OK(answers[0]);
  const SchedulerStats& stats = scheduler.stats();
  EXPECT_EQ(stats.peak_unshared_pages, 24);
  EXPECT_LE(stats.peak_pages, 0.55 * stats.peak_unshared_pages);
  EXPECT_LE(stats.page_steps, 0.55 * stats.unshared_page_steps);
  EXPECT_LE(stats.max_tail_copies, 3);
  EXPECT_GT(stats.num_tail_copies, 0);
}

}  // namespace
}  // namespace espalier

// Two plans in flight give what one gives, to the bit: of any mixture of
// requests, whichever is cancelled when, whichever step fails, however few
// pages there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "base/status.h"
#include "batcher/scheduler/scheduler.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Answers = std::vector<std::optional<absl::StatusOr<Result>>>;

void Submit(Scheduler& scheduler, int i, const Request& request,
            Answers* answers) {
  scheduler.Submit(
      RequestId{i}, PreparedRequest(request), [answers, i](auto result) {
        ASSERT_FALSE((*answers)[i].has_value()) << "answered twice";
        (*answers)[i] = std::move(result);
      });
}

// Pages of any size and number give the same results.
void ExpectAsAlone(const ToyModelOptions& options,
                   const std::vector<Request>& requests,
                   const Answers& answers) {
  ToyModelOptions roomy = options;
  roomy.num_pages = 2000;
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(answers[i].has_value()) << i;
    const absl::StatusOr<Result> alone = RunAlone(roomy, requests[i]);
    ASSERT_EQ(answers[i]->status(), alone.status()) << i;
    if (!alone.ok()) continue;
    EXPECT_TRUE(SameResult(**answers[i], *alone)) << i;
  }
}

// Models of many kinds: many hypotheses end at every step, or few; fewer
// tokens than beams; histories that nothing can follow.
ToyModelOptions AnyModel(std::mt19937& random) {
  const auto any = [&](auto... values) {
    const float of[] = {static_cast<float>(values)...};
    return of[random() % sizeof...(values)];
  };
  ToyModelOptions options;
  options.seed = random();
  options.vocab_size = static_cast<int>(any(4, 5, 11, 40));
  options.eos_boost = any(-4, 0, 2, 4);
  if (random() % 3 == 0) options.eos_token_ids = {0, 2};
  options.impossible_percent = static_cast<int>(any(0, 0, 0, 20));
  options.page_size = static_cast<int>(any(1, 2, 3, 16));
  options.num_pages = 2000;
  return options;
}

std::vector<Request> AnyRequests(std::mt19937& random, int count,
                                 const ModelDescription& model) {
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    requests.push_back(RandomRequest(random, model));
    GenerationParams& params = requests.back().params;
    const bool is_plain = !params.do_sample && params.num_beam_groups == 1;
    if (is_plain && random() % 5 == 0) params.num_beams = 20;
  }
  return requests;
}

SchedulerOptions AnyOptions(std::mt19937& random) {
  const int budgets[] = {1, 7, 30, 500};
  return {.max_running = 1 + static_cast<int>(random() % 12),
          .max_step_tokens = budgets[random() % 4],
          .validate_steps = true};
}

TEST(RunAheadTest, AnyMixtureGivesWhatEachRequestGivesAlone) {
  for (uint32_t seed = 0; seed < testing::Cases(300, 50); ++seed) {
    std::mt19937 random(seed);
    const ToyModelOptions options = AnyModel(random);
    ToyModel model(options);
    const auto requests = AnyRequests(random, 12, model.description());
    Scheduler scheduler(model.description(), AnyOptions(random));
    Answers answers(requests.size());
    // They arrive one by one, while others run.
    const auto arrive = [&](int step) {
      if (step < 12) Submit(scheduler, step, requests[step], &answers);
    };
    RunToEnd(scheduler, model, arrive, 2);
    ExpectAsAlone(options, requests, answers);
    ExpectNothingHeld(scheduler);
  }
}

TEST(RunAheadTest, WithoutPagesRequestsWaitAndAllComeThrough) {
  for (uint32_t seed = 0; seed < testing::Cases(100, 20); ++seed) {
    std::mt19937 random(1000 + seed);
    ToyModelOptions options = AnyModel(random);
    ToyModel roomy(options);
    const auto requests = AnyRequests(random, 12, roomy.description());
    int64_t most = 0;
    for (const Request& request : requests) {
      most = std::max(most, GroupPages::WorstCase(request, options.page_size));
    }
    options.num_pages = static_cast<int>(most);  // the widest fits alone
    ToyModel model(options);
    Scheduler scheduler(model.description(), AnyOptions(random));
    Answers answers(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      Submit(scheduler, static_cast<int>(i), requests[i], &answers);
    }
    RunToEnd(
        scheduler, model, [](int) {}, 2);
    ExpectAsAlone(options, requests, answers);
    ExpectNothingHeld(scheduler);
  }
}

TEST(RunAheadTest, CancellingAtAnyMomentLeavesTheOthersAsTheyWere) {
  int num_cancelled = 0;
  for (uint32_t seed = 0; seed < testing::Cases(300, 50); ++seed) {
    std::mt19937 random(2000 + seed);
    const ToyModelOptions options = AnyModel(random);
    ToyModel model(options);
    auto requests = AnyRequests(random, 10, model.description());
    Scheduler scheduler(model.description(), AnyOptions(random));
    Answers answers(requests.size());
    for (int i = 0; i < 10; ++i) Submit(scheduler, i, requests[i], &answers);
    const auto cancel = [&](int) {
      if (random() % 4 != 0) return;
      scheduler.Cancel(RequestId{static_cast<int>(random() % 10)},
                       absl::CancelledError("stop"));
    };
    RunToEnd(scheduler, model, cancel, 2);
    for (size_t i = answers.size(); i-- > 0;) {
      ASSERT_TRUE(answers[i].has_value()) << i;
      if (answers[i]->status().code() != absl::StatusCode::kCancelled) continue;
      ++num_cancelled;
      requests.erase(requests.begin() + i);
      answers.erase(answers.begin() + i);
    }
    ExpectAsAlone(options, requests, answers);
    ExpectNothingHeld(scheduler);
  }
  EXPECT_GT(num_cancelled, testing::Cases(300, 50));
}

// Fails in given steps.
class FailingModel : public ToyModel {
 public:
  FailingModel(const ToyModelOptions& options, std::set<int> failing_steps)
      : ToyModel(options), failing_steps_(std::move(failing_steps)) {}

  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    RETURN_IF_ERROR(ToyModel::Forward(plan, logits));
    if (failing_steps_.count(num_steps_++) == 0) return absl::OkStatus();
    return absl::DataLossError("the device is gone");
  }

 private:
  const std::set<int> failing_steps_;
  int num_steps_ = 0;
};

// Runs requests with two steps that fail, and counts the requests that ended by
// them and those that did not.
void RunFailing(std::mt19937& random, const ToyModelOptions& options,
                std::vector<Request> requests, int* num_failed,
                int* num_answered) {
  const int first = static_cast<int>(random() % 30);
  FailingModel model(options, {first, first + 1 + int(random() % 3)});
  SchedulerOptions scheduling = AnyOptions(random);
  scheduling.max_running = 3;
  Scheduler scheduler(model.description(), scheduling);
  Answers answers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    Submit(scheduler, static_cast<int>(i), requests[i], &answers);
  }
  RunToEnd(
      scheduler, model, [](int) {}, 2);
  for (size_t i = answers.size(); i-- > 0;) {
    ASSERT_TRUE(answers[i].has_value()) << i;
    if (answers[i]->status().code() != absl::StatusCode::kDataLoss) continue;
    ++*num_failed;
    requests.erase(requests.begin() + i);
    answers.erase(answers.begin() + i);
  }
  *num_answered += static_cast<int>(answers.size());
  ExpectAsAlone(options, requests, answers);
  ExpectNothingHeld(scheduler);
}

TEST(RunAheadTest, FailedStepsEndTheirRequestsAlone) {
  int num_failed = 0;
  int num_answered = 0;
  for (uint32_t seed = 0; seed < testing::Cases(300, 50); ++seed) {
    std::mt19937 random(3000 + seed);
    const ToyModelOptions options = AnyModel(random);
    auto requests = AnyRequests(random, 10, ToyModel(options).description());
    RunFailing(random, options, std::move(requests), &num_failed,
               &num_answered);
  }
  EXPECT_GT(num_failed, testing::Cases(300, 50));
  EXPECT_GT(num_answered, testing::Cases(300, 50));
}

// An executor keeps every beam's history then: it is lost with the plan's
// groups, and with no others.
TEST(RunAheadTest, FailedStepsLeaveTheHistoriesOfOthersAsTheyWere) {
  int num_failed = 0;
  int num_answered = 0;
  for (uint32_t seed = 0; seed < testing::Cases(150, 25); ++seed) {
    std::mt19937 random(4000 + seed);
    const ToyModelOptions options = AnyModel(random);
    auto requests = AnyRequests(random, 10, ToyModel(options).description());
    for (size_t i = 0; i < requests.size(); ++i) {
      GenerationParams& params = requests[i].params;
      if (i % 3 == 0) params.repetition_penalty = 1.7;
      if (i % 3 == 1) params.no_repeat_ngram_size = 2;
      if (i % 3 == 2) params.presence_penalty = 0.6;
    }
    RunFailing(random, options, std::move(requests), &num_failed,
               &num_answered);
  }
  EXPECT_GT(num_failed, testing::Cases(150, 25));
  EXPECT_GT(num_answered, testing::Cases(150, 25));
}

// A request for the toy model; beams in groups wait for each answer.
Request MakeRequest(const ToyModel& model, int num_beams, int max_new_tokens,
                    bool waits = false) {
  Request request{{1, 2, 3, 4, 5}, {}};
  request.params.num_beams = num_beams;
  request.params.max_new_tokens = max_new_tokens;
  if (waits) request.params.num_beam_groups = 2;
  EXPECT_OK(ValidateRequest(model.description(), &request));
  return request;
}

ToyModelOptions WithoutEos() {
  ToyModelOptions options;
  options.eos_token_ids = {};
  return options;
}

TEST(RunAheadTest, FiguresAreThoseOfOnePlanInFlight) {
  std::vector<SchedulerStats> stats;
  for (const int plans_in_flight : {1, 2}) {
    ToyModel model(WithoutEos());
    Scheduler scheduler(model.description(), {.validate_steps = true});
    Answers answers(1);
    Submit(scheduler, 0, MakeRequest(model, 3, 14), &answers);
    RunToEnd(
        scheduler, model, [](int) {}, plans_in_flight);
    stats.push_back(scheduler.stats());
  }
  EXPECT_EQ(stats[1].num_steps, stats[0].num_steps);
  EXPECT_EQ(stats[1].num_prompt_tokens, 5);
  EXPECT_EQ(stats[1].num_decode_rows, 3 * 13);
  EXPECT_EQ(stats[1].num_generated_tokens, 14);
  EXPECT_EQ(stats[1].num_tail_copies, stats[0].num_tail_copies);
  EXPECT_EQ(stats[1].max_tail_copies, stats[0].max_tail_copies);
  EXPECT_EQ(stats[1].unshared_page_steps, stats[0].unshared_page_steps);
}

TEST(RunAheadTest, AfterItsPromptAGroupIsPlannedByContinuationsAlone) {
  ToyModel model(WithoutEos());
  PlanRunner runner(&model);
  Scheduler scheduler(model.description(), {.validate_steps = true});
  Answers answers(1);
  Submit(scheduler, 0, MakeRequest(model, 3, 5), &answers);
  StepPlan plan = scheduler.Plan();
  EXPECT_THAT(plan.rows, SizeIs(1));
  absl::StatusOr<StepResult> last = runner.Run(std::move(plan));
  for (int step = 1; step < 5; ++step) {
    plan = scheduler.Plan();
    EXPECT_THAT(plan.rows, IsEmpty());
    ASSERT_THAT(plan.continuations, SizeIs(1));
    EXPECT_EQ(plan.continuations[0].position, 5 + step - 1);
    EXPECT_EQ(plan.continuations[0].num_generated, step);
    EXPECT_THAT(plan.continuations[0].tail_pages, SizeIs(3));
    EXPECT_TRUE(scheduler.Plan().is_noop());  // two are in flight
    absl::StatusOr<StepResult> result = runner.Run(std::move(plan));
    scheduler.Advance(std::exchange(last, std::move(result)));
  }
  EXPECT_TRUE(scheduler.Plan().is_noop());  // the fifth token is the last
  scheduler.Advance(std::move(last));
  EXPECT_OK(*answers[0]);
  EXPECT_THAT(scheduler.Plan().ended, ElementsAre(RequestId{0}));
}

TEST(RunAheadTest, WhatEndedWaitsForAStepThatRuns) {
  ToyModel model(WithoutEos());
  PlanRunner runner(&model);
  Scheduler scheduler(model.description(), {.validate_steps = true});
  Answers answers(2);
  Submit(scheduler, 0, MakeRequest(model, 2, 5, true), &answers);
  Submit(scheduler, 1, MakeRequest(model, 2, 5, true), &answers);
  absl::StatusOr<StepResult> result = runner.Run(scheduler.Plan());
  scheduler.Cancel(RequestId{1}, absl::CancelledError("stop"));
  EXPECT_TRUE(scheduler.Plan().is_noop());
  scheduler.Advance(std::move(result));
  const StepPlan plan = scheduler.Plan();
  EXPECT_THAT(plan.rows, SizeIs(2));
  EXPECT_THAT(plan.ended, ElementsAre(RequestId{1}));
}

// Half a batch in every step would cost nearly twice as much.
TEST(RunAheadTest, GroupsThatNeedTheirAnswersStepTogether) {
  ToyModel model(WithoutEos());
  PlanRunner runner(&model);
  Scheduler scheduler(model.description(), {.validate_steps = true});
  Answers answers(2);
  Submit(scheduler, 0, MakeRequest(model, 2, 9, true), &answers);
  absl::StatusOr<StepResult> first = runner.Run(scheduler.Plan());
  Submit(scheduler, 1, MakeRequest(model, 2, 9, true), &answers);
  absl::StatusOr<StepResult> second = runner.Run(scheduler.Plan());
  scheduler.Advance(std::move(first));
  EXPECT_TRUE(scheduler.Plan().is_noop());
  scheduler.Advance(std::move(second));
  EXPECT_THAT(scheduler.Plan().selections, SizeIs(2));
}

TEST(RunAheadTest, AnAnswerThatIsNoneEndsTheRequestsOfItsPlanOnly) {
  ToyModel model(WithoutEos());
  PlanRunner runner(&model);
  Scheduler scheduler(model.description(), {.validate_steps = true});
  Answers answers(2);
  Submit(scheduler, 0, MakeRequest(model, 2, 5), &answers);
  absl::StatusOr<StepResult> first = runner.Run(scheduler.Plan());
  Submit(scheduler, 1, MakeRequest(model, 2, 5), &answers);
  absl::StatusOr<StepResult> second = runner.Run(scheduler.Plan());
  first->selections[0].candidates[0].beam = 1;  // there is only beam 0
  scheduler.Advance(std::move(first));
  EXPECT_THAT(*answers[0], StatusIs(absl::StatusCode::kInternal,
                                    HasSubstr("after beam 1 of 1")));
  ASSERT_FALSE(answers[1].has_value());
  scheduler.Advance(std::move(second));
  RunToEnd(scheduler, model);
  EXPECT_OK(*answers[1]);
  ExpectNothingHeld(scheduler);
}

}  // namespace
}  // namespace espalier

#include "batcher/scheduler/plans_in_flight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A selection of request 1, a continuation of 2, and the prompt of 3.
StepPlan PlanOfThree() {
  StepPlan plan;
  plan.selections.emplace_back().request = RequestId{1};
  plan.continuations.push_back({.request = RequestId{2}});
  plan.scorings.push_back(
      {.request = RequestId{3}, .first_logits = 0, .tokens = {7, 8}});
  plan.page_copies.resize(4);
  return plan;
}

StepResult AnswerOf(std::vector<int64_t> selections,
                    std::vector<int64_t> scorings) {
  StepResult result;
  for (const int64_t id : selections) {
    result.selections.push_back({.request = RequestId{id}});
  }
  for (const int64_t id : scorings) {
    result.scorings.push_back({.request = RequestId{id}, .logprobs = {}});
  }
  return result;
}

TEST(PlansInFlightTest, PlansAreRememberedInTheirOrder) {
  PlansInFlight plans;
  EXPECT_TRUE(plans.empty());
  plans.Push(PlanOfThree(),
             std::vector{RequestId{1}, RequestId{2}, RequestId{3}});
  plans.Push(StepPlan(), std::vector{RequestId{9}});
  const PlanInFlight first = plans.TakeOldest();
  EXPECT_THAT(first.requests,
              ElementsAre(RequestId{1}, RequestId{2}, RequestId{3}));
  EXPECT_THAT(first.continuations(), ElementsAre(RequestId{2}));
  EXPECT_EQ(first.num_page_copies, 4);
  EXPECT_EQ(first.scored.at(0).second, 2);
  EXPECT_THAT(plans.oldest().requests, ElementsAre(RequestId{9}));
  plans.TakeOldest();
  EXPECT_TRUE(plans.empty());
}

TEST(PlansInFlightTest, EverythingAskedIsAnsweredInTheSameOrder) {
  PlansInFlight plans;
  plans.Push(PlanOfThree(), {});
  const PlanInFlight plan = plans.TakeOldest();
  const auto is_internal = [](const char* message) {
    return StatusIs(absl::StatusCode::kInternal, HasSubstr(message));
  };
  EXPECT_OK(ValidateStepResult(plan, AnswerOf({1, 2}, {3})));
  EXPECT_THAT(ValidateStepResult(plan, AnswerOf({1}, {3})),
              is_internal("a step of 2 selections was answered with 1"));
  EXPECT_THAT(ValidateStepResult(plan, AnswerOf({2, 1}, {3})),
              is_internal("selection 0 of a step is of request 1"));
  EXPECT_THAT(ValidateStepResult(plan, AnswerOf({1, 2}, {})),
              is_internal("1 scorings of prompts was answered with 0"));
  EXPECT_THAT(ValidateStepResult(plan, AnswerOf({1, 2}, {4})),
              is_internal("or with others"));
}

TEST(PlansInFlightTest, SlotsOfContinuationsAreTokens) {
  StepPlan plan = PlanOfThree();
  plan.tokens = {1, 2, 3};
  plan.continuations[0].tail_pages.resize(4);
  PlansInFlight plans;
  EXPECT_EQ(plans.Push(plan, {}).num_tokens, 3 + 4);
}

TEST(StepPlanTest, APlanThatMovesPagesIsForTheExecutor) {
  EXPECT_TRUE(StepPlan().is_noop());
  StepPlan copies;
  copies.page_copies.resize(1);
  EXPECT_TRUE(copies.empty());
  EXPECT_FALSE(copies.is_noop());
  StepPlan loads;
  loads.page_loads.resize(1);
  EXPECT_FALSE(loads.is_noop());
}

TEST(PlansInFlightTest, StepsAddUp) {
  SchedulerStats stats;
  AddStep({.num_pages = 5,
           .num_unshared_pages = 9,
           .num_tail_copies = 2,
           .num_rows_ahead = 3},
          &stats);
  AddStep({.num_pages = 4,
           .num_unshared_pages = 10,
           .num_tail_copies = 1,
           .num_rows_ahead = 0},
          &stats);
  EXPECT_EQ(stats.num_steps, 2);
  EXPECT_EQ(stats.peak_pages, 5);
  EXPECT_EQ(stats.page_steps, 9);
  EXPECT_EQ(stats.peak_unshared_pages, 10);
  EXPECT_EQ(stats.unshared_page_steps, 19);
  EXPECT_EQ(stats.num_decode_rows, 3);
  EXPECT_EQ(stats.num_tail_copies, 3);
  EXPECT_EQ(stats.max_tail_copies, 2);
}

}  // namespace
}  // namespace espalier

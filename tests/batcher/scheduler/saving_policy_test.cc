#include "batcher/scheduler/saving_policy.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

// Pages of 16 tokens, which load in a millisecond.
ModelDescription ModelWithLink() {
  ModelDescription model;
  model.page_size = 16;
  model.page_bytes = 1'000'000;
  model.host_bandwidth = 1e9;
  return model;
}

PlanInFlight StepOf(int64_t num_prompt_tokens, int64_t num_others) {
  PlanInFlight plan;
  plan.num_prompt_tokens = num_prompt_tokens;
  plan.num_tokens = num_prompt_tokens + num_others;
  return plan;
}

// Returns a plan that feeds `num_prompt_tokens` beside asynchronously scheduled
// groups of four beams.
PlanInFlight StepBesideGroups(int num_prompt_tokens, int num_groups) {
  StepPlan plan;
  plan.tokens.resize(num_prompt_tokens);
  for (int i = 0; i < num_groups; ++i) {
    GroupContinuation& group = plan.continuations.emplace_back();
    group.request = RequestId{i};
    group.tail_pages.resize(4);
  }
  PlansInFlight plans;
  PlanInFlight& step = plans.Push(plan, {});
  step.num_prompt_tokens = num_prompt_tokens;
  return step;
}

TEST(SavingPolicyTest, WhatLoadsSoonerThanItIsFedIsSaved) {
  SavingPolicy policy(ModelWithLink(), PreemptedPages::kAuto);
  EXPECT_EQ(policy.min_tokens(), 1);  // not known yet
  // 0.3 ms a token: three take less than a page, four more.
  policy.AddStep(StepOf(90, 10), absl::Milliseconds(30));
  EXPECT_EQ(policy.min_tokens(), 4);
  // 0.05 ms a token: a page is fed in 0.8 ms.
  SavingPolicy fast(ModelWithLink(), PreemptedPages::kAuto);
  fast.AddStep(StepOf(1000, 0), absl::Milliseconds(50));
  EXPECT_EQ(fast.min_tokens(), 17);
}

TEST(SavingPolicyTest, StepsOfBeamsTellNothing) {
  SavingPolicy policy(ModelWithLink(), PreemptedPages::kAuto);
  policy.AddStep(StepOf(10, 10), absl::Milliseconds(30));
  policy.AddStep(StepBesideGroups(8, 2), absl::Milliseconds(30));
  EXPECT_EQ(policy.min_tokens(), 1);
}

// 64 tokens of a prompt and 32 of beams, in 0.3 ms each.
TEST(SavingPolicyTest, TokensOfGroupsThatRunAheadCount) {
  SavingPolicy policy(ModelWithLink(), PreemptedPages::kAuto);
  policy.AddStep(StepBesideGroups(64, 8), absl::Milliseconds(96 * 0.3));
  EXPECT_EQ(policy.min_tokens(), 4);
}

TEST(SavingPolicyTest, LastStepsWeighMost) {
  SavingPolicy policy(ModelWithLink(), PreemptedPages::kAuto);
  policy.AddStep(StepOf(100, 0), absl::Milliseconds(1000));
  EXPECT_EQ(policy.min_tokens(), 1);
  for (int i = 0; i < 200; ++i) {
    policy.AddStep(StepOf(100, 0), absl::Milliseconds(30));
  }
  EXPECT_EQ(policy.min_tokens(), 4);
}

TEST(SavingPolicyTest, OptionsDecideForAll) {
  SavingPolicy host(ModelWithLink(), PreemptedPages::kHost);
  SavingPolicy drop(ModelWithLink(), PreemptedPages::kDrop);
  for (SavingPolicy* policy : {&host, &drop}) {
    policy->AddStep(StepOf(1000, 0), absl::Milliseconds(50));
  }
  EXPECT_EQ(host.min_tokens(), 1);
  EXPECT_EQ(drop.min_tokens(), 17);
}

TEST(SavingPolicyTest, WithoutABandwidthAllAreSaved) {
  ModelDescription model = ModelWithLink();
  model.host_bandwidth = 0;
  SavingPolicy policy(model, PreemptedPages::kAuto);
  policy.AddStep(StepOf(1000, 0), absl::Milliseconds(50));
  EXPECT_EQ(policy.min_tokens(), 1);
}

}  // namespace
}  // namespace espalier

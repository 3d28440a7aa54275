// A plan that fails for lack of memory, anywhere, loses its groups and no
// other. Every allocation fails once, in turn.
//
// A program of its own, because it replaces operator new.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <utility>

#include "executor/host/persistent_groups.h"
#include "tests/replace_operator_new.h"

namespace {

// The allocation that fails, counted from 1; 0: none does.
int failing_allocation = 0;

}  // namespace

void espalier::testing::OnAllocation() {
  if (failing_allocation > 0 && --failing_allocation == 0) {
    throw std::bad_alloc();
  }
}

namespace espalier {
namespace {

constexpr RequestId kGroup{7};
constexpr RequestId kOther{8};

StepPlan PromptPlan(RequestId group) {
  StepPlan plan;
  plan.rows = {{.num_tokens = 4, .num_logits = 1}};
  plan.tokens = {1, 2, 3, 4};
  plan.num_logits = 1;
  plan.page_indices.push_back(PageId{0});
  plan.page_indptr = {0, 1};
  PlanSelection selection = {.request = group, .num_rows = 1};
  selection.choice = BeamSelection{.num_candidates = 4};
  selection.cum_log_probs = {0};
  selection.slots = {0};
  selection.num_slots = 2;
  plan.selections = {std::move(selection)};
  return plan;
}

StepPlan Continuation() {
  StepPlan plan;
  plan.continuations.push_back({.request = kGroup,
                                .position = 4,
                                .tail_pages = {PageId{1}, PageId{2}},
                                .num_candidates = 4,
                                .num_generated = 1});
  return plan;
}

void RunPrompt(RequestId group, PersistentGroups* groups) {
  StepPlan plan = PromptPlan(group);
  groups->ExpandContinuations(&plan);
  StepResult result;
  result.selections = {{group, {{0, 1, -1}, {0, 2, -2}}}};
  groups->Advance(result);
}

TEST(PersistentGroupsMemoryTest, APlanThatFailsLosesItsGroupsAndNoOther) {
  int num_failed = 0;
  for (int allocation = 1;; ++allocation) {
    SCOPED_TRACE(allocation);
    PersistentGroups groups(/*page_size=*/4);
    RunPrompt(kGroup, &groups);
    RunPrompt(kOther, &groups);
    ASSERT_EQ(groups.num_groups(), 2);

    StepPlan plan = Continuation();
    failing_allocation = allocation;
    bool has_failed = false;
    try {
      groups.ExpandContinuations(&plan);
    } catch (const std::bad_alloc&) {
      has_failed = true;
    }
    const bool was_struck = std::exchange(failing_allocation, 0) == 0;
    if (!was_struck) break;
    if (!has_failed) continue;  // it waited for memory
    ++num_failed;
    groups.DiscardFailedStep();
    EXPECT_EQ(groups.num_groups(), 1);
    StepPlan ending;
    ending.ended = {kOther};
    groups.ExpandContinuations(&ending);
    EXPECT_EQ(groups.num_groups(), 0);
  }
  EXPECT_GT(num_failed, 2);
}

}  // namespace
}  // namespace espalier

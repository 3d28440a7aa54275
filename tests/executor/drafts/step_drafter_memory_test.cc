// A step whose drafts fail for lack of memory, anywhere, fails or has no
// drafts, and the next step is as ever. Every allocation of Begin(), and of
// End() for rows ahead, fails once, in turn.
//
// A program of its own, because it replaces operator new.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "executor/drafts/step_drafter.h"
#include "tests/executor/drafts/drafting_plan.h"
#include "tests/replace_operator_new.h"
#include "tests/status_matchers.h"
#include "tests/toy_model.h"

namespace {

// The allocation that fails, counted from 1; 0: none does.
int failing_allocation = 0;

}  // namespace

void espalier::testing::OnAllocation() {
  if (failing_allocation > 0 && --failing_allocation == 0) {
    throw std::bad_alloc();
  }
}

namespace espalier::testing {
namespace {

class StepDrafterMemoryTest : public ::testing::Test {
 protected:
  StepDrafterMemoryTest() {
    ToyModelOptions options;
    options.num_tokens_read = 2;
    options.has_shareable_pages = true;
    draft_ = *DraftModel::Create(std::make_shared<ToyModel>(options),
                                 *ThreadPool::Create(1));
    drafter_.emplace(draft_, options.page_size);
  }

  // Returns the filled plan of a request, or nothing if Begin() throws. Then
  // the step has failed.
  std::optional<StepPlan> Run(RequestId request, int failing = 0) {
    StepPlan plan = PlanThatDrafts(request);
    StepDrafter::Step drafts;
    bool has_failed = false;
    failing_allocation = failing;
    try {
      drafter_->Begin(&plan, &drafts);
    } catch (const std::bad_alloc&) {
      has_failed = true;
    }
    was_struck_ = failing > 0 && failing_allocation == 0;
    failing_allocation = 0;
    absl::StatusOr<StepResult> result = ResourceExhausted("no memory");
    if (!has_failed) result = Answer(request, {5});
    drafter_->End(&drafts, &result);
    if (has_failed) return std::nullopt;
    EXPECT_OK(result.status());
    EXPECT_LE(result->selections[0].num_drafted.size(), 1u);
    return plan;
  }
  static StepResult Answer(RequestId request, std::vector<TokenId> tokens) {
    StepResult answer;
    SelectionResult& selection = answer.selections.emplace_back();
    selection.request = request;
    selection.num_tokens = {static_cast<int>(tokens.size())};
    for (const TokenId token : tokens) {
      selection.candidates.push_back({0, token, -1.0f});
    }
    return answer;
  }
  void EndRequests() {
    StepPlan plan;
    plan.ended = {RequestId{1}, RequestId{2}};
    StepDrafter::Step drafts;
    drafter_->Begin(&plan, &drafts);
    absl::StatusOr<StepResult> result = StepResult();
    drafter_->End(&drafts, &result);
    EXPECT_EQ(drafter_->num_groups(), 0);
    EXPECT_EQ(draft_->num_sequences(), 0);
    EXPECT_EQ(draft_->pages().num_held(), 0);
  }

  std::shared_ptr<DraftModel> draft_;
  std::optional<StepDrafter> drafter_;
  bool was_struck_ = false;
};

// Executors make one where nothing may throw.
TEST(StepDrafterStepTest, IsMadeWithoutMemory) {
  failing_allocation = 1;
  const StepDrafter::Step step;
  EXPECT_EQ(std::exchange(failing_allocation, 0), 1);
}

TEST_F(StepDrafterMemoryTest, NoFailedAllocationReachesTheNextStep) {
  const std::optional<StepPlan> expected = Run(RequestId{2});
  ASSERT_TRUE(expected.has_value());
  ASSERT_EQ(expected->tokens.size(), 4u);
  EndRequests();
  int num_failed = 0;
  int num_without_drafts = 0;
  int failing = 1;
  for (was_struck_ = true; was_struck_; ++failing) {
    SCOPED_TRACE(failing);
    const std::optional<StepPlan> plan = Run(RequestId{1}, failing);
    const bool was_struck = was_struck_;
    num_failed += !plan.has_value();
    num_without_drafts += plan.has_value() && plan->tokens.size() == 1;
    const std::optional<StepPlan> next = Run(RequestId{2});
    ASSERT_TRUE(next.has_value());
    EXPECT_EQ(next->tokens, expected->tokens);
    EndRequests();
    was_struck_ = was_struck;
  }
  EXPECT_GT(failing, 20);
  EXPECT_GT(num_failed, 3);
  EXPECT_GT(num_without_drafts, 3);
}

// The row is the one after both tokens of the last result, with drafts or
// without, and the result counts these.
TEST_F(StepDrafterMemoryTest, AFailedAllocationChangesNoRowsAhead) {
  int num_failed = 0;
  int num_with_drafts = 0;
  int failing = 1;
  for (was_struck_ = true; was_struck_; ++failing) {
    SCOPED_TRACE(failing);
    StepPlan plan = PlanThatDrafts(RequestId{1});
    StepDrafter::Step drafts;
    drafter_->Begin(&plan, &drafts);
    absl::StatusOr<StepResult> result = Answer(RequestId{1}, {5, 6});
    drafter_->End(&drafts, &result);
    StepPlan ahead = PlanThatDrafts(RequestId{1});
    ahead.rows[0].first_position = 10;
    PlanSelection& selection = ahead.selections.Edit(0);
    selection.num_generated = 2;
    selection.EditDraws().drafts.is_ahead = true;
    StepDrafter::Step drafts_ahead;
    absl::StatusOr<StepResult> result_ahead = Answer(RequestId{1}, {7});
    const absl::Status failed = ResourceExhausted("no memory");
    bool has_failed = false;
    failing_allocation = failing;
    try {
      drafter_->Begin(&ahead, &drafts_ahead);
    } catch (const std::bad_alloc&) {
      has_failed = true;
      result_ahead = failed;
    }
    drafter_->End(&drafts_ahead, &result_ahead);
    was_struck_ = failing_allocation == 0;
    failing_allocation = 0;
    EXPECT_EQ(drafter_->num_groups(), has_failed ? 0 : 1);
    num_failed += has_failed;
    if (!has_failed) {
      ASSERT_EQ(ahead.rows.size(), 1u);
      EXPECT_EQ(ahead.rows[0].first_position, 11);
      EXPECT_EQ(ahead.tokens[0], 6);
      EXPECT_EQ(ahead.selections[0].num_generated, 3);
      const int num_drafted = static_cast<int>(ahead.tokens.size()) - 1;
      num_with_drafts += num_drafted > 0;
      const SelectionResult& answer = result_ahead->selections[0];
      EXPECT_THAT(answer.num_drafted, ::testing::ElementsAre(num_drafted));
      EXPECT_EQ(answer.candidates.size(), 1u);
    }
    EndRequests();
  }
  EXPECT_GT(failing, 30);
  EXPECT_GT(num_failed, 3);
  EXPECT_GT(num_with_drafts, 10);
}

}  // namespace
}  // namespace espalier::testing

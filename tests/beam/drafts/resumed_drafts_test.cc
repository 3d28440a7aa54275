// A resumed group that finds all its tokens in the prefix tree, the last page
// by a copy, feeds a token before it requests drafts: a plan that copies pages
// has rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

#include "beam/sequence_group.h"
#include "tests/beam/drafts/drafting_model.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::DraftingModel;

class ResumedDraftsTest : public ::testing::Test {
 protected:
  static PreparedRequest Prepared() {
    Request request = {{1, 2, 3, 4, 5, 6}, {}};
    request.params.max_new_tokens = 20;
    // With a constraint the drafts are verified by a later plan.
    std::vector<int64_t> allowed;
    for (int i = 0; i < 20; ++i) allowed.push_back(10 + i);
    request.params.allowed_sequences.emplace().push_back(std::move(allowed));
    request.params.speculate = {SpeculationMethod::kDraft};
    EXPECT_OK(ValidateRequest(DraftingModel(), &request));
    return PreparedRequest(std::move(request));
  }

  // Feeds the prompt and tokens until `num_generated` are generated, without
  // room for drafts, and preempts the group.
  void RunAndPreempt(int num_generated, SequenceGroup* group) {
    StepPlan next;
    for (int i = 0; i < num_generated; ++i) {
      StepPlan plan;
      if (group->prefilling()) group->MatchPrefix(0, &plan);
      ASSERT_OK(group->PlanStep(100, &plan));
      group->OnPlanOut();
      group->OnAnswer();
      const SelectionResult answer = {.request = group->id(),
                                      .candidates = {{0, 10 + i, -1.0f}}};
      ASSERT_OK(group->Advance(answer, &next));
    }
    group->Preempt({}, true, &next);
  }

  PagePool pool_{50, 4};
  PrefixTree tree_{&pool_};
  SequenceIdSource ids_;
};

TEST_F(ResumedDraftsTest, WhereAPageIsCopiedATokenIsFedFirst) {
  SequenceGroup longer(RequestId{0}, Prepared(), &pool_, &ids_, &tree_);
  RunAndPreempt(8, &longer);  // 13 tokens are fed: three full pages
  SequenceGroup group(RequestId{1}, Prepared(), &pool_, &ids_, &tree_);
  RunAndPreempt(4, &group);  // 9 tokens are fed, the last in a page of its own
  group.Resume();
  StepPlan plan;
  group.MatchPrefix(0, &plan);
  ASSERT_FALSE(group.prefilling());
  ASSERT_EQ(plan.page_copies.size(), 1);
  const DraftRoom room = {.num_tokens = 8, .num_pages = 8};
  ASSERT_OK(group.PlanStep(100, &plan, std::numeric_limits<int>::max(),
                           std::numeric_limits<int>::max(), room));
  EXPECT_EQ(plan.rows.size(), 1);
  EXPECT_TRUE(plan.drafting.empty());
}

}  // namespace
}  // namespace espalier

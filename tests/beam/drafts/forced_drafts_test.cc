// A sample with a constraint feeds what that forces, also by the method of a
// draft model, which is not asked then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "beam/sequence_group.h"
#include "tests/beam/drafts/drafting_model.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::DraftingModel;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ForcedDraftsTest, AreThoseOfADraftModelWithAConstraint) {
  for (const SpeculationMethod method :
       {SpeculationMethod::kConstraint, SpeculationMethod::kDraft}) {
    PagePool pool(50, 4);
    SequenceIdSource ids;
    Request request = {{1, 2, 3, 4, 5, 6}, {}};
    request.params.max_new_tokens = 20;
    request.params.allowed_sequences = {{7, 8, 9, 10, 11}};
    request.params.speculate = {
        .method = method, .num_tokens = 3, .always_drafts = true};
    ASSERT_OK(ValidateRequest(DraftingModel(), &request));
    SequenceGroup group(RequestId{1}, PreparedRequest(std::move(request)),
                        &pool, &ids);
    StepPlan prompt;
    ASSERT_OK(group.PlanStep(100, &prompt));
    StepPlan plan;
    ASSERT_OK(group.Advance(
        {.request = group.id(), .candidates = {{0, 7, -1.0f}}}, &plan));
    constexpr int kAny = std::numeric_limits<int>::max();
    ASSERT_OK(group.PlanStep(100, &plan, kAny, kAny,
                             {.num_tokens = 8, .num_pages = 8}));
    EXPECT_THAT(plan.tokens, ElementsAre(7, 8, 9, 10));
    EXPECT_THAT(plan.drafting, IsEmpty());
  }
}

}  // namespace
}  // namespace espalier

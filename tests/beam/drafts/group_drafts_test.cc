#include "beam/drafts/group_drafts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

GenerationParams DrawnByModel() {
  GenerationParams params;
  params.do_sample = true;
  params.speculate = SpeculationParams{.method = SpeculationMethod::kDraft,
                                       .num_tokens = 3,
                                       .mode = SpeculationMode::kRejection,
                                       .always_drafts = true};
  return params;
}

// A group may be planned again without new drafts, because other groups verify
// in that step. Drafts that its last step verified, and rejected, are gone.
TEST(GroupDraftsTest, WhatAModelDraftedIsVerifiedOnce) {
  GroupDrafts drafts(DrawnByModel(), true, nullptr);
  ASSERT_TRUE(drafts.has_to_ask());
  const std::vector<int> most = {5};
  EXPECT_THAT(drafts.Draft(most, 100), ElementsAre(IsEmpty()));
  drafts.OnAsk({{.rank = 0, .num_tokens = 8}});
  EXPECT_TRUE(drafts.is_waiting());
  std::vector<DraftedTokens> answer(1);
  answer[0].tokens = {7, 8, 9};
  drafts.Take(answer);
  const auto first = drafts.Draft(most, 100);
  EXPECT_THAT(first, ElementsAre(ElementsAre(7, 8, 9)));
  drafts.OnPlan(/*verifies=*/true);
  const std::vector<int> drafted = {3};
  const std::vector<int> accepted = {1};
  const std::vector<int> given = {2};
  drafts.Record(drafted, accepted, given);
  EXPECT_FALSE(drafts.has_answer());
  EXPECT_THAT(drafts.Draft(most, 100), ElementsAre(IsEmpty()));
}

// Rows of logits are large.
TEST(GroupDraftsTest, LogitsAreKeptUntilAStepIsPlanned) {
  for (const bool verifies : {false, true}) {
    GroupDrafts drafts(DrawnByModel(), true, nullptr);
    drafts.OnAsk({{.rank = 0, .num_tokens = 3}});
    const auto owner = std::make_shared<const float>(1.0f);
    std::vector<DraftedTokens> answer(1);
    answer[0].tokens = {7};
    answer[0].logits = DraftLogits(owner, 1, DraftLogits::kHost);
    drafts.Take(answer);
    answer.clear();
    std::vector<DraftLogits> planned = drafts.Logits({{{7}}});
    EXPECT_EQ(owner.use_count(), 3);
    drafts.OnPlan(verifies);
    EXPECT_EQ(owner.use_count(), 2);
    planned.clear();
    EXPECT_EQ(owner.use_count(), 1);
  }
}

// Requests drafts at every step that may, and returns `answer` as drafts.
// Returns the number of requests in `num_steps` steps.
int NumAsks(int num_steps, const DraftedTokens& answer, bool verifies) {
  GroupDrafts drafts(DrawnByModel(), true, nullptr);
  int num_asks = 0;
  for (int i = 0; i < num_steps; ++i) {
    if (drafts.has_to_ask()) {
      ++num_asks;
      drafts.OnAsk({{.rank = 0, .num_tokens = 3}});
      std::vector<DraftedTokens> answers = {answer};
      drafts.Take(answers);
    }
    drafts.OnPlan(verifies);
    drafts.Record({}, {}, {});
  }
  return num_asks;
}

TEST(GroupDraftsTest, DraftsThatNoStepVerifiesAreAskedForEveryOtherStep) {
  const DraftedTokens drafted = {.tokens = {7}};
  EXPECT_EQ(NumAsks(200, drafted, true), 200);
  EXPECT_LE(NumAsks(200, {}, false), 10);
  EXPECT_LE(NumAsks(200, drafted, false), 101);
  EXPECT_EQ(NumAsks(200, {.is_behind = true}, false), 200);
}

}  // namespace
}  // namespace espalier

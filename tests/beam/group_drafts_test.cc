#include "beam/group_drafts.h"

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

// A group may plan without asking again, because others verify in that step:
// what its last step verified, and rejected, is no draft any more.
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
  drafts.OnPlan();
  const std::vector<int> accepted = {1};
  drafts.Record(first, accepted);
  EXPECT_FALSE(drafts.has_answer());
  EXPECT_THAT(drafts.Draft(most, 100), ElementsAre(IsEmpty()));
}

// Rows of logits are large.
TEST(GroupDraftsTest, LogitsAreKeptUntilAStepIsPlanned) {
  GroupDrafts drafts(DrawnByModel(), true, nullptr);
  drafts.OnAsk({{.rank = 0, .num_tokens = 3}});
  const auto owner = std::make_shared<const float>(1.0f);
  std::vector<DraftedTokens> answer(1);
  answer[0].tokens = {7};
  answer[0].logits = DraftLogits(owner, 1, DraftLogits::kHost);
  drafts.Take(answer);
  answer.clear();
  const std::vector<std::vector<TokenId>> tokens = {{7}};
  std::vector<DraftLogits> planned = drafts.Logits(tokens);
  EXPECT_EQ(owner.use_count(), 3);
  drafts.OnPlan();
  EXPECT_EQ(owner.use_count(), 2);
  planned.clear();
  EXPECT_EQ(owner.use_count(), 1);
}

}  // namespace
}  // namespace espalier

#include "beam/group_drafts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  drafts.OnAsk({0}, 8);
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

}  // namespace
}  // namespace espalier

#include "beam/drafts/group_drafts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

GenerationParams BeamsByModel() {
  GenerationParams params;
  params.num_beams = 2;
  params.speculate = SpeculationParams{.method = SpeculationMethod::kDraft,
                                       .num_tokens = 3,
                                       .always_drafts = true};
  return params;
}

DraftedTokens PathOf(std::vector<TokenId> tokens) {
  DraftedTokens drafted;
  drafted.paths.push_back({.tokens = std::move(tokens)});
  return drafted;
}

// A group may be planned again without new drafts, because other groups verify
// in that step. Drafts that its last step verified, and rejected, are gone.
TEST(GroupDraftsTest, WhatAModelDraftedIsVerifiedOnce) {
  GroupDrafts drafts(BeamsByModel(), true, nullptr);
  ASSERT_TRUE(drafts.has_to_ask());
  EXPECT_THAT(drafts.DraftPaths(2, 5), IsEmpty());
  drafts.OnAsk({{.rank = 0, .num_tokens = 8}});
  EXPECT_TRUE(drafts.is_waiting());
  std::vector<DraftedTokens> answer = {PathOf({7, 8, 9})};
  drafts.Take(answer);
  const std::vector<BeamPath> first = drafts.DraftPaths(2, 5);
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_THAT(first[0].path.tokens, ElementsAre(7, 8, 9));
  drafts.OnPlan(/*verifies=*/true);
  drafts.RecordPaths(nullptr);
  EXPECT_FALSE(drafts.has_answer());
  EXPECT_THAT(drafts.DraftPaths(2, 5), IsEmpty());
}

// Requests drafts at every step that may, and returns `answer` as drafts.
// Returns the number of requests in `num_steps` steps.
int NumAsks(int num_steps, const DraftedTokens& answer, bool verifies) {
  GroupDrafts drafts(BeamsByModel(), true, nullptr);
  int num_asks = 0;
  for (int i = 0; i < num_steps; ++i) {
    if (drafts.has_to_ask()) {
      ++num_asks;
      drafts.OnAsk({{.rank = 0, .num_tokens = 3}});
      std::vector<DraftedTokens> answers = {answer};
      drafts.Take(answers);
    }
    drafts.OnPlan(verifies);
    drafts.RecordPaths(nullptr);
  }
  return num_asks;
}

TEST(GroupDraftsTest, DraftsThatNoStepVerifiesAreAskedForEveryOtherStep) {
  const DraftedTokens drafted = PathOf({7});
  EXPECT_EQ(NumAsks(200, drafted, true), 200);
  EXPECT_LE(NumAsks(200, {}, false), 10);
  EXPECT_LE(NumAsks(200, drafted, false), 101);
  EXPECT_EQ(NumAsks(200, {.is_behind = true}, false), 200);
}

}  // namespace
}  // namespace espalier

// Each rule of DiverseBeamStrategy by a case; tests/batcher compares whole
// searches with transformers 4.
#include "beam/strategy/diverse_beam_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "beam/strategy/beam_strategy.h"
#include "tests/beam/letters.h"
#include "tests/beam/search_alone.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SearchAsTheEngine;
using testing::StatusIs;
using testing::ToyLogitsModel;

GenerationParams DiverseParams(int64_t num_beams, int64_t num_groups,
                               double penalty) {
  GenerationParams params;
  params.num_beams = num_beams;
  params.num_return_sequences = num_beams;
  params.num_beam_groups = num_groups;
  params.diversity_penalty = penalty;
  params.max_new_tokens = 10;
  params.eos_token_id = {kEos};
  return params;
}

Continuations Step(DiverseBeamStrategy& strategy,
                   SmallVector<Candidate> candidates) {
  EXPECT_OK(strategy.Advance({.candidates = candidates}, nullptr));
  const auto beams = strategy.continuations();
  return {beams.begin(), beams.end()};
}

PlanSelection Selection(const DiverseBeamStrategy& strategy) {
  PlanSelection selection;
  strategy.DescribeSelection(&selection);
  return selection;
}

TEST(DiverseBeamStrategyTest, AsksOfEachRowWhatAGroupAndThePenalisedMayTake) {
  DiverseBeamStrategy strategy(DiverseParams(6, 3, 0.5));
  PlanSelection selection = Selection(strategy);
  EXPECT_EQ(selection.num_rows, 1);
  EXPECT_EQ(selection.num_candidates(), 2 * 2 + 4);
  EXPECT_THAT(selection.cum_log_probs, ElementsAre(0.0f));
  EXPECT_FALSE(strategy.supports_async_scheduling());
}

TEST(DiverseBeamStrategyTest, LaterGroupsPayForEveryBeamThatChoseTheToken) {
  DiverseBeamStrategy strategy(DiverseParams(4, 2, 0.75));
  // Group 0 takes A and B; for group 1 these are -1.75 and -2.25, so C is best.
  EXPECT_THAT(Step(strategy, {{0, kA, -1}, {0, kB, -1.5}, {0, kC, -1.625}}),
              ElementsAre(Continuation{0, kA}, Continuation{0, kB},
                          Continuation{0, kC}, Continuation{0, kA}));
  // The penalty stays in the sums.
  EXPECT_THAT(Selection(strategy).cum_log_probs,
              ElementsAre(-1.0f, -1.5f, -1.625f, -1.75f));
  // Both beams of group 0 choose C: twice the penalty for it in group 1.
  EXPECT_THAT(Step(strategy, {{0, kC, -1.25},
                              {1, kC, -1.75},
                              {2, kC, -1.75},
                              {2, kB, -3},
                              {3, kC, -2},
                              {3, kA, -3.375}}),
              ElementsAre(Continuation{0, kC}, Continuation{1, kC},
                          Continuation{2, kB}, Continuation{2, kC}));
  EXPECT_THAT(Selection(strategy).cum_log_probs,
              ElementsAre(-1.25f, -1.75f, -3.0f, -3.25f));
}

TEST(DiverseBeamStrategyTest, AGroupThatIsOverHasNoRowsAndOthersGoOn) {
  GenerationParams params = DiverseParams(2, 2, 1);
  params.early_stopping = EarlyStopping::kTrue;
  DiverseBeamStrategy strategy(params);
  // Group 0 ends with its only place filled; group 1 pays nothing for EOS, but
  // what group 0 chose to go on with, A.
  EXPECT_THAT(Step(strategy, {{0, kA, -0.5}, {0, kEos, -0.75}, {0, kB, -2}}),
              ElementsAre(Continuation{0, kA}));
  EXPECT_FALSE(strategy.done());
  EXPECT_EQ(Selection(strategy).num_rows, 1);
  EXPECT_THAT(Step(strategy, {{0, kEos, -1}, {0, kA, -2}}), IsEmpty());
  EXPECT_TRUE(strategy.done());
  ASSERT_EQ(strategy.Hypotheses().size(), 2);
  EXPECT_THAT(strategy.Hypotheses()[0].tokens, ElementsAre(kA, kEos));
  EXPECT_EQ(strategy.Hypotheses()[0].score, -0.5f);
  EXPECT_THAT(strategy.Hypotheses()[1].tokens, ElementsAre(kEos));
}

TEST(DiverseBeamStrategyTest, AtTheLimitBeamsOfGroupsThatAreNotOverFinish) {
  GenerationParams params = DiverseParams(4, 2, 1);
  params.max_new_tokens = 1;
  DiverseBeamStrategy strategy(params);
  EXPECT_THAT(Step(strategy,
                   {{0, kA, -0.5}, {0, kEos, -0.75}, {0, kB, -1}, {0, kC, -3}}),
              IsEmpty());
  ASSERT_EQ(strategy.Hypotheses().size(), 4);
  EXPECT_THAT(strategy.Hypotheses()[0].tokens, ElementsAre(kA));
  EXPECT_EQ(strategy.Hypotheses()[0].finish_reason, FinishReason::kLength);
  // Group 1 pays for A and B, not for the EOS, with which no beam went on.
  EXPECT_THAT(strategy.Hypotheses()[1].tokens, ElementsAre(kEos));
  EXPECT_THAT(strategy.Hypotheses()[2].tokens, ElementsAre(kEos));
}

TEST(DiverseBeamStrategyTest, WithoutAPenaltyAllGroupsFindTheSame) {
  const auto model = ToyLogitsModel({.vocab_size = 9, .seed = 3});
  Request diverse = {{1, 2}, DiverseParams(6, 3, 0)};
  Request plain = {{1, 2}, DiverseParams(2, 1, 0)};
  diverse.params.early_stopping = EarlyStopping::kNever;
  plain.params.early_stopping = EarlyStopping::kNever;
  ASSERT_OK_AND_ASSIGN(const Result a, SearchAsTheEngine(model, diverse));
  ASSERT_OK_AND_ASSIGN(const Result b, SearchAsTheEngine(model, plain));
  ASSERT_EQ(a.hypotheses.size(), 6);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(a.hypotheses[i].tokens, b.hypotheses[i / 3].tokens);
  }
}

TEST(DiverseBeamStrategyTest, DecidesOnEveryCandidateOfEveryGroup) {
  DiverseBeamStrategy strategy(DiverseParams(2, 2, 1));
  std::vector<Decision> decisions;
  ASSERT_OK(strategy.Advance(
      {.candidates = {{0, kA, -1}, {0, kB, -1.5}, {0, kC, -3}}}, &decisions));
  std::vector<std::pair<int, bool>> kept;
  for (const Decision& decision : decisions) {
    kept.push_back(
        {decision.candidate_idx, decision.what == Decision::What::kKept});
  }
  EXPECT_THAT(kept, ElementsAre(std::pair(0, true), std::pair(1, false),
                                std::pair(1, true), std::pair(0, false)));
}

TEST(DiverseBeamStrategyTest, NoPossibleTokenIsAnError) {
  DiverseBeamStrategy strategy(DiverseParams(4, 2, 1));
  EXPECT_THAT(strategy.Advance({}, nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no token is possible after 0")));
  EXPECT_TRUE(strategy.done());
}

}  // namespace
}  // namespace espalier

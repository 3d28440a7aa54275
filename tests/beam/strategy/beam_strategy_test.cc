// Each rule of BeamStrategy by a case that comes out differently if the rule
// is broken. reference_parity_test.cc has the same rules at random.
#include "beam/strategy/beam_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/beam/letters.h"
#include "tests/beam/search_alone.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

GenerationParams Params(int64_t num_beams,
                        EarlyStopping early_stopping = EarlyStopping::kFalse) {
  GenerationParams params;
  params.num_beams = num_beams;
  params.num_return_sequences = num_beams;
  params.early_stopping = early_stopping;
  params.max_new_tokens = 10;
  params.eos_token_id = {kEos};
  return params;
}

// Advances and returns the beams that live on.
Continuations Step(BeamStrategy& strategy, SmallVector<Candidate> candidates) {
  EXPECT_OK(strategy.Advance({.candidates = candidates}, nullptr));
  const auto beams = strategy.continuations();
  EXPECT_EQ(beams.empty(), strategy.done());
  return {beams.begin(), beams.end()};
}

std::vector<std::vector<TokenId>> TokensOf(const BeamStrategy& strategy) {
  std::vector<std::vector<TokenId>> tokens;
  for (const Hypothesis& hypothesis : strategy.Hypotheses()) {
    tokens.push_back(hypothesis.tokens);
  }
  return tokens;
}

std::vector<float> Scores(const BeamStrategy& strategy) {
  std::vector<float> scores;
  for (const Hypothesis& hypothesis : strategy.Hypotheses()) {
    scores.push_back(hypothesis.score);
  }
  return scores;
}

auto Near(double value) { return FloatNear(static_cast<float>(value), 1e-6f); }

PlanSelection Selection(const BeamStrategy& strategy) {
  PlanSelection selection;
  strategy.DescribeSelection(&selection);
  return selection;
}

// Probabilities of {EOS, 1, 2} for each step and live beam, as in the test of
// fairseq's sequence generator (tests/utils.py, sequence_generator_setup).
using Script = std::vector<std::vector<std::vector<float>>>;

void RunScript(const Script& script, BeamStrategy& strategy) {
  for (const auto& step : script) {
    std::vector<std::vector<float>> log_probs;
    for (std::vector<float> beam : step) {
      for (float& value : beam) value = std::log(value);
      log_probs.push_back(beam);
    }
    const PlanSelection selection = Selection(strategy);
    ASSERT_EQ(selection.num_rows, step.size());
    Step(strategy, testing::SelectBySort(log_probs, selection.cum_log_probs,
                                         selection.num_candidates()));
  }
}

// The beams before each step, by rank, are what the search says of itself.
TEST(BeamStrategyTest, BeamIndicesNameTheBeamThatEachTokenWasAppendedTo) {
  std::mt19937 random(5);
  for (int search = 0; search < 200; ++search) {
    GenerationParams params = Params(1 + search % 5);
    params.max_new_tokens = 1 + search % 7;
    params.beam_indices = true;
    BeamStrategy strategy(params);
    std::vector<std::vector<std::vector<TokenId>>> lived;  // by step and rank
    while (!strategy.done()) {
      const PlanSelection selection = Selection(strategy);
      std::vector<std::vector<float>> log_probs(selection.num_rows);
      std::vector<std::vector<TokenId>>& live = lived.emplace_back();
      for (int rank = 0; rank < selection.num_rows; ++rank) {
        live.push_back(strategy.tree().Path(strategy.node(rank)));
        for (int token = 0; token < 6; ++token) {
          log_probs[rank].push_back(-1 - random() % 1000 / 250.0f);
        }
      }
      Step(strategy, testing::SelectBySort(log_probs, selection.cum_log_probs,
                                           selection.num_candidates()));
    }
    for (const Hypothesis& hypothesis : strategy.Hypotheses()) {
      const std::vector<TokenId>& tokens = hypothesis.tokens;
      ASSERT_EQ(hypothesis.beam_indices.size(), tokens.size());
      for (size_t step = 0; step < tokens.size(); ++step) {
        const std::vector<TokenId> before(tokens.begin(),
                                          tokens.begin() + step);
        EXPECT_EQ(lived[step].at(hypothesis.beam_indices[step]), before)
            << "search " << search << ", step " << step;
      }
    }
  }
}

TEST(BeamStrategyTest, ScriptedSearchThatRunsOutOfBeams) {
  BeamStrategy strategy(Params(2));
  RunScript({{{0.0, 0.9, 0.1}},
             {{1.0, 0.0, 0.0}, {0.0, 0.9, 0.1}},
             {{0.0, 0.1, 0.9}, {0.6, 0.2, 0.2}},
             {{1.0, 0.0, 0.0}, {1.0, 0.0, 0.0}}},
            strategy);
  EXPECT_TRUE(strategy.done());
  EXPECT_THAT(TokensOf(strategy), ElementsAre(ElementsAre(kA, kEos),
                                              ElementsAre(kB, kA, kB, kEos)));
  EXPECT_THAT(Scores(strategy),
              ElementsAre(Near(std::log(0.9) / 2), Near(std::log(0.081) / 4)));
}

TEST(BeamStrategyTest, ScriptedSearchThatEndsWithAFullPool) {
  BeamStrategy strategy(Params(2, EarlyStopping::kTrue));
  RunScript({{{0.0, 0.7, 0.3}},
             {{0.25, 0.35, 0.4}, {0.0, 0.1, 0.9}},
             {{0.6, 0.4, 0.0}, {0.01, 0.0, 0.99}},
             {{0.1, 0.5, 0.4}, {1.0, 0.0, 0.0}}},
            strategy);
  EXPECT_TRUE(strategy.done());
  EXPECT_THAT(TokensOf(strategy), ElementsAre(ElementsAre(kA, kB, kA, kEos),
                                              ElementsAre(kA, kB, kEos)));
  EXPECT_THAT(Scores(strategy), ElementsAre(Near(std::log(0.112) / 4),
                                            Near(std::log(0.168) / 3)));
}

TEST(BeamStrategyTest, SelectsForEveryLiveBeamTwiceTheBeams) {
  BeamStrategy strategy(Params(3));
  PlanSelection selection = Selection(strategy);
  EXPECT_EQ(selection.num_rows, 1);
  EXPECT_EQ(selection.num_candidates(), 6);
  EXPECT_EQ(selection.num_generated, 0);
  EXPECT_THAT(selection.cum_log_probs, ElementsAre(0.0f));
  Step(strategy, {{0, kB, -1}, {0, kEos, -2}, {0, kA, -3}});
  selection = Selection(strategy);
  EXPECT_EQ(selection.num_rows, 2);
  EXPECT_EQ(selection.num_generated, 1);
  EXPECT_THAT(selection.cum_log_probs, ElementsAre(-1.0f, -3.0f));
}

TEST(BeamStrategyTest, EveryDistinctEosIdAsksForMoreCandidates) {
  GenerationParams params = Params(3);
  params.eos_token_id = {0, 3, 5, 3, 0};
  EXPECT_EQ(Selection(BeamStrategy(params)).num_candidates(), 12);
  params.eos_token_id = std::vector<int64_t>();
  EXPECT_EQ(Selection(BeamStrategy(params)).num_candidates(), 6);
}

TEST(BeamStrategyTest, TheBestThatDoNotHitLiveOnInOrder) {
  BeamStrategy strategy(Params(2));
  EXPECT_THAT(
      Step(strategy, {{0, kEos, -1}, {0, kC, -2}, {0, kA, -3}, {0, kB, -4}}),
      ElementsAre(Continuation{0, kC}, Continuation{0, kA}));
  EXPECT_THAT(
      Step(strategy, {{1, kB, -4}, {1, kC, -5}, {0, kA, -6}, {0, kB, -7}}),
      ElementsAre(Continuation{1, kB}, Continuation{1, kC}));
  std::vector<TokenId> tokens;
  strategy.AppendTokens(1, &tokens);
  EXPECT_THAT(tokens, ElementsAre(kA, kC));
}

TEST(BeamStrategyTest, AnEosRankedBelowTheBeamsDoesNotEnterThePool) {
  BeamStrategy strategy(Params(2));
  Step(strategy, {{0, kA, -1}, {0, kEos, -2}, {0, kB, -3}});
  EXPECT_THAT(TokensOf(strategy), ElementsAre(ElementsAre(kEos)));
  Step(strategy, {{0, kA, -2}, {0, kB, -3}, {0, kEos, -3.5}, {1, kA, -4}});
  EXPECT_THAT(TokensOf(strategy), ElementsAre(ElementsAre(kEos)));
}

TEST(BeamStrategyTest, EarlyStoppingTrueEndsWhenThePoolIsFull) {
  BeamStrategy strategy(Params(2, EarlyStopping::kTrue));
  Step(strategy, {{0, kEos, -0.5}, {0, kA, -1.0}, {0, kB, -2}});
  Step(strategy, {{0, kB, -1.2}, {0, kEos, -1.5}, {1, kA, -3}});
  EXPECT_TRUE(strategy.done());
  EXPECT_THAT(TokensOf(strategy),
              ElementsAre(ElementsAre(kEos), ElementsAre(kA, kEos)));
}

TEST(BeamStrategyTest, EarlyStoppingFalseGoesOnReplacingTheWorst) {
  BeamStrategy strategy(Params(2));
  Step(strategy, {{0, kEos, -0.5}, {0, kA, -1.0}, {0, kB, -2}});
  Step(strategy, {{0, kB, -1.2}, {0, kEos, -1.5}, {1, kA, -3}});
  ASSERT_FALSE(strategy.done());  // -1.2 / 2 beats -1.5 / 2
  Step(strategy, {{0, kEos, -1.25}, {0, kA, -1.3}, {1, kA, -4}});
  EXPECT_FALSE(strategy.done());  // -1.3 / 3 beats -0.5
  EXPECT_THAT(TokensOf(strategy),
              ElementsAre(ElementsAre(kA, kB, kEos), ElementsAre(kEos)));
}

// A pool of two with worst score -0.5 after step 2, the best live beam -1.2:
// -0.6 at its length, -0.12 at full length.
bool GoesOnWithWorstAtHalf(EarlyStopping early_stopping) {
  BeamStrategy strategy(Params(2, early_stopping));
  Step(strategy, {{0, kEos, -0.1}, {0, kA, -0.9}, {0, kB, -1.0}});
  Step(strategy, {{0, kEos, -1.0}, {1, kB, -1.2}, {1, kC, -1.3}});
  EXPECT_EQ(strategy.Hypotheses().back().score, -0.5f);
  return !strategy.done();
}

TEST(BeamStrategyTest, EndsWhenNoLiveBeamBeatsTheWorstAtItsLength) {
  EXPECT_FALSE(GoesOnWithWorstAtHalf(EarlyStopping::kFalse));
}

TEST(BeamStrategyTest, NeverGoesOnWhileALongerBeamMightBeatTheWorst) {
  EXPECT_TRUE(GoesOnWithWorstAtHalf(EarlyStopping::kNever));
}

// With length_penalty -1 scores are cum * length: more tokens only lower them,
// so the present length is the bound: -1.2 * 2 beats -3, -1.2 * 10 would not.
TEST(BeamStrategyTest, NeverUsesThePresentLengthWhereShorterIsBetter) {
  GenerationParams params = Params(2, EarlyStopping::kNever);
  params.length_penalty = -1;
  BeamStrategy strategy(params);
  Step(strategy, {{0, kA, -0.9}, {0, kEos, -3.0}, {0, kB, -3.1}});
  Step(strategy, {{0, kEos, -1.1}, {0, kB, -1.2}, {0, kC, -1.3}});
  EXPECT_THAT(Scores(strategy), ElementsAre(Near(-2.2), Near(-3.0)));
  EXPECT_FALSE(strategy.done());
}

TEST(BeamStrategyTest, AnEqualScoreIsNoImprovement) {
  BeamStrategy strategy(Params(2));
  Step(strategy, {{0, kEos, -0.1}, {0, kA, -0.9}, {0, kB, -1.0}});
  Step(strategy, {{0, kEos, -1.2}, {1, kB, -1.2}, {1, kC, -1.3}});
  EXPECT_TRUE(strategy.done());
}

TEST(BeamStrategyTest, EndsWhenEveryCandidateHits) {
  GenerationParams params = Params(3);
  params.eos_token_id = {kEos, kC};
  BeamStrategy strategy(params);
  Step(strategy, {{0, kC, -1}, {0, kEos, -2}});
  EXPECT_TRUE(strategy.done());
  EXPECT_THAT(TokensOf(strategy),
              ElementsAre(ElementsAre(kC), ElementsAre(kEos)));
}

TEST(BeamStrategyTest, AtTheLengthLimitTheBestEnterWhetherEosOrNot) {
  GenerationParams params = Params(2);
  params.max_new_tokens = 2;
  BeamStrategy strategy(params);
  Step(strategy, {{0, kA, -0.5}, {0, kB, -0.6}, {0, kEos, -0.7}});
  Step(strategy,
       {{1, kC, -1.0}, {0, kEos, -1.2}, {0, kB, -1.4}, {1, kEos, -1.5}});
  EXPECT_TRUE(strategy.done());
  EXPECT_THAT(TokensOf(strategy),
              ElementsAre(ElementsAre(kB, kC), ElementsAre(kA, kEos)));
  EXPECT_EQ(strategy.Hypotheses()[0].finish_reason, FinishReason::kLength);
  EXPECT_EQ(strategy.Hypotheses()[1].finish_reason, FinishReason::kEos);
  EXPECT_EQ(strategy.Hypotheses()[1].cum_log_prob, -1.2f);
}

TEST(BeamStrategyTest, ReturnsAsManyHypothesesAsAskedFor) {
  GenerationParams params = Params(3);
  params.num_return_sequences = 2;
  params.max_new_tokens = 1;
  BeamStrategy strategy(params);
  Step(strategy, {{0, kA, -1}, {0, kB, -2}, {0, kEos, -3}, {0, kC, -4}});
  EXPECT_THAT(TokensOf(strategy),
              ElementsAre(ElementsAre(kA), ElementsAre(kB)));
}

// Pruned ones live on in others.
TEST(BeamStrategyTest, BeamsEndWithTheSearch) {
  GenerationParams params = Params(2);
  params.max_new_tokens = 3;
  BeamStrategy strategy(params);
  Step(strategy, {{0, kA, -1}, {0, kB, -2}});
  EXPECT_TRUE(strategy.ended().empty());
  Step(strategy, {{0, kA, -2}, {0, kB, -3}});
  EXPECT_TRUE(strategy.ended().empty());
  const TokenTree::Node nodes[] = {strategy.node(0), strategy.node(1)};
  Step(strategy, {{1, kA, -4}, {1, kB, -5}});
  ASSERT_EQ(strategy.ended().size(), 2u);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(strategy.ended()[rank].rank, rank);
    EXPECT_EQ(strategy.ended()[rank].node, nodes[rank]);
  }
}

TEST(BeamStrategyTest, DeadEndsLeaveFewerBeamsAndFewerHypotheses) {
  GenerationParams params = Params(3);
  params.max_new_tokens = 3;
  BeamStrategy strategy(params);
  EXPECT_EQ(Step(strategy, {{0, kA, -1}, {0, kB, -2}}).size(), 2);
  EXPECT_THAT(Step(strategy, {{1, kA, -3}}), ElementsAre(Continuation{1, kA}));
  Step(strategy, {{0, kC, -4}, {0, kA, -5}});
  EXPECT_TRUE(strategy.done());
  EXPECT_THAT(TokensOf(strategy),
              ElementsAre(ElementsAre(kB, kA, kC), ElementsAre(kB, kA, kA)));
}

TEST(BeamStrategyTest, WhatFinishedIsTheAnswerWhenAllBeamsDie) {
  BeamStrategy strategy(Params(2));
  Step(strategy, {{0, kEos, -1}, {0, kA, -2}});
  Step(strategy, {});
  EXPECT_TRUE(strategy.done());
  EXPECT_THAT(TokensOf(strategy), ElementsAre(ElementsAre(kEos)));
}

TEST(BeamStrategyTest, NoPossibleTokenIsAnErrorThatSaysWhere) {
  BeamStrategy strategy(Params(2));
  Step(strategy, {{0, kA, -1}, {0, kB, -2}});
  EXPECT_THAT(strategy.Advance({}, nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no token is possible after 1 generated")));
  EXPECT_TRUE(strategy.done());
  EXPECT_THAT(strategy.Hypotheses(), IsEmpty());
}

GenerationParams Patient(double patience) {
  GenerationParams params = Params(2, EarlyStopping::kTrue);
  params.patience = patience;
  return params;
}

// round(2 * 1.5) = 3 are needed; the third replaces none of the two best.
TEST(BeamStrategyTest, PatienceWaitsForMoreHypothesesThanBeams) {
  BeamStrategy strategy(Patient(1.5));
  Step(strategy, {{0, kEos, -0.5}, {0, kA, -1.0}, {0, kB, -2}});
  Step(strategy, {{0, kB, -1.2}, {0, kEos, -1.5}, {1, kA, -3}});
  ASSERT_FALSE(strategy.done());
  Step(strategy, {{0, kEos, -6}, {0, kA, -7}, {1, kA, -8}});
  EXPECT_TRUE(strategy.done());
  EXPECT_THAT(TokensOf(strategy),
              ElementsAre(ElementsAre(kEos), ElementsAre(kA, kEos)));
}

TEST(BeamStrategyTest, ImpatienceEndsWithFewerHypothesesThanBeams) {
  for (const double patience : {0.5, 0.1}) {  // at least one
    BeamStrategy strategy(Patient(patience));
    Step(strategy, {{0, kA, -0.5}, {0, kEos, -1.0}, {0, kB, -2}});
    EXPECT_TRUE(strategy.done());
    EXPECT_THAT(TokensOf(strategy), ElementsAre(ElementsAre(kEos)));
  }
}

// Candidates that end in one step enter the pool together, as far as there is
// room.
TEST(BeamStrategyTest, ImpatienceStillTakesAllThatEndTogether) {
  GenerationParams params = Patient(0.5);
  params.eos_token_id = {kEos, kC};
  BeamStrategy strategy(params);
  Step(strategy, {{0, kEos, -0.5}, {0, kC, -1.0}, {0, kB, -2}});
  EXPECT_TRUE(strategy.done());
  EXPECT_THAT(TokensOf(strategy),
              ElementsAre(ElementsAre(kEos), ElementsAre(kC)));
}

TEST(BeamStrategyTest, StopIdsEndAsStopAndAskForMoreCandidates) {
  GenerationParams params = Params(2);
  params.stop_token_ids = {kC, 7};
  BeamStrategy strategy(params);
  EXPECT_EQ(Selection(strategy).num_candidates(), 8);
  Step(strategy, {{0, kC, -0.5}, {0, kEos, -1.0}, {0, kB, -2}, {0, kA, -3}});
  ASSERT_EQ(strategy.Hypotheses().size(), 2);
  EXPECT_EQ(strategy.Hypotheses()[0].finish_reason, FinishReason::kStop);
  EXPECT_EQ(strategy.Hypotheses()[1].finish_reason, FinishReason::kEos);
}

// cum / ((5 + t) / 6)^2: -1 after 1 token, -1.8 * 36 / 49 after 2.
TEST(BeamStrategyTest, WusFormDividesScores) {
  GenerationParams params = Params(2, EarlyStopping::kTrue);
  params.length_penalty_form = LengthPenaltyForm::kWu;
  params.length_penalty = 2;
  BeamStrategy strategy(params);
  Step(strategy, {{0, kEos, -1.0}, {0, kA, -1.5}, {0, kB, -2}});
  Step(strategy, {{0, kEos, -1.8}, {0, kA, -2.0}, {1, kB, -3}});
  EXPECT_THAT(Scores(strategy), ElementsAre(Near(-1), Near(-1.8 * 36 / 49)));
}

TEST(BeamStrategyDeathTest, ACandidateBelongsToALiveBeam) {
  BeamStrategy strategy(Params(2));
  const SmallVector<Candidate> candidates = {{1, kA, -1}};
  EXPECT_DEATH((void)strategy.Advance({.candidates = candidates}, nullptr),
               "candidate of beam 1 of 1");
}

}  // namespace
}  // namespace espalier

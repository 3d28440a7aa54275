#include "beam/validate_result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/float_limits.h"
#include "kernels/sample/sample.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int kNumAnswerTokens = 10;

// Returns a selection of two rows.
PlanSelection SelectionOf(SelectionKind kind, bool gumbel_top_k = false,
                          int num_logprobs = -1) {
  SelectionParams params;
  params.num_logprobs = num_logprobs;
  PlanSelection asked;
  asked.num_rows = 2;
  asked.cum_log_probs = {-1, -2};
  switch (kind) {
    case SelectionKind::kBeams:
      asked.choice = BeamSelection{.num_candidates = 3};
      break;
    case SelectionKind::kRows:
      asked.choice =
          RowSelection{.num_candidates = 3, .gumbel_top_k = gumbel_top_k};
      break;
    case SelectionKind::kDraws:
      asked.choice = DrawSelection{.samples = {0, 3}};
  }
  asked.params = std::make_shared<const SelectionParams>(std::move(params));
  return asked;
}

TokenLogProb Of(TokenId token, std::vector<TokenScore> best = {}) {
  return {.token = token, .log_prob = -1, .rank = 1, .best = std::move(best)};
}

absl::Status Check(const PlanSelection& asked,
                   SmallVector<Candidate> candidates,
                   std::vector<TokenLogProb> logprobs = {}) {
  return ValidateResult(asked,
                        {.request = {},
                         .candidates = std::move(candidates),
                         .logprobs = std::move(logprobs)},
                        kNumAnswerTokens);
}

void ExpectRefused(const absl::Status& status, const std::string& why) {
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, HasSubstr(why)));
}

TEST(ValidateResultTest, CandidatesAreOfLiveBeamsAndTheVocabulary) {
  for (const SelectionKind kind :
       {SelectionKind::kBeams, SelectionKind::kRows}) {
    const PlanSelection asked = SelectionOf(kind);
    EXPECT_OK(Check(asked, {}));
    EXPECT_OK(Check(asked, {{0, 0, -1}, {1, 9, -2}}));
    ExpectRefused(Check(asked, {{2, 5, -1}}), "token 5 after beam 2 of 2");
    ExpectRefused(Check(asked, {{-1, 5, -1}}), "token 5 after beam -1 of 2");
    ExpectRefused(Check(asked, {{0, 10, -1}}), "token 10 after beam 0");
    ExpectRefused(Check(asked, {{0, kNoToken, -1}}), "token -1");
    const float nan = std::numeric_limits<float>::quiet_NaN();
    ExpectRefused(Check(asked, {{0, 5, nan}}), "NaN");
  }
}

TEST(ValidateResultTest, BeamsComeBestFirst) {
  const PlanSelection asked = SelectionOf(SelectionKind::kBeams);
  EXPECT_OK(Check(asked, {{1, 5, -1}, {0, 4, -1}, {0, 3, -2}}));
  ExpectRefused(Check(asked, {{0, 5, -2}, {1, 4, -1}}), "out of order, at 1");
  ExpectRefused(Check(asked, {{0, 5, -2}, {1, 4, -2}, {1, 5, -2}, {0, 1, -3}}),
                "more than 3 candidates");
}

TEST(ValidateResultTest, RowsComeOneAfterTheOtherEachBestFirst) {
  const PlanSelection asked = SelectionOf(SelectionKind::kRows);
  EXPECT_OK(Check(asked, {{0, 5, -2}, {0, 4, -2}, {0, 1, -3}, {1, 5, -1}}));
  EXPECT_OK(Check(asked, {{1, 5, -1}}));
  ExpectRefused(Check(asked, {{1, 5, -1}, {0, 4, -1}}), "out of order, at 1");
  ExpectRefused(Check(asked, {{0, 5, -1}, {1, 4, -1}, {0, 3, -1}}),
                "out of order, at 2");
  ExpectRefused(Check(asked, {{0, 5, -1}, {1, 4, -2}, {1, 3, -1}}),
                "out of order, at 2");
  ExpectRefused(Check(asked, {{1, 5, -2}, {1, 4, -2}, {1, 5, -2}, {1, 1, -3}}),
                "more than 3 candidates");
}

// The order and the sums in between do not matter.
TEST(ValidateResultTest, AContinuationComesOnce) {
  for (const bool gumbel_top_k : {false, true}) {
    const PlanSelection asked = SelectionOf(SelectionKind::kRows, gumbel_top_k);
    EXPECT_OK(Check(asked, {{0, 5, -1}, {0, 4, -2}, {1, 5, -1}, {1, 4, -2}}));
    ExpectRefused(
        Check(asked, {{0, 5, -1}, {1, 4, -1}, {1, 5, -2}, {1, 4, -3}}),
        "twice with token 4 after beam 1");
  }
  const PlanSelection asked = SelectionOf(SelectionKind::kBeams);
  EXPECT_OK(Check(asked, {{0, 5, -1}, {1, 5, -1}, {0, 4, -2}}));
  ExpectRefused(Check(asked, {{0, 5, -1}, {1, 5, -1}, {0, 5, -2}}),
                "twice with token 5 after beam 0");
}

// Gumbel keys are not part of the result.
TEST(ValidateResultTest, GumbelTopKRowsAreInAnyOrderAndMayBeNoNumbers) {
  const PlanSelection asked = SelectionOf(SelectionKind::kRows, true);
  EXPECT_OK(Check(asked, {{0, 5, -2}, {0, 4, -1}, {1, kNotANumber, 0}}));
  ExpectRefused(Check(asked, {{1, 5, -1}, {0, 4, -1}}), "out of order, at 1");
}

TEST(ValidateResultTest, SumsThatNoiseIsAddedToAreFinite) {
  for (const float sum : {kInf, -kInf}) {
    EXPECT_OK(Check(SelectionOf(SelectionKind::kRows), {{0, 5, sum}}));
    ExpectRefused(Check(SelectionOf(SelectionKind::kRows, true), {{0, 5, sum}}),
                  "an infinite sum of token 5");
  }
}

TEST(ValidateResultTest, EverySampleDrawsFromItsRow) {
  PlanSelection asked = SelectionOf(SelectionKind::kDraws);
  EXPECT_OK(Check(asked, {{0, 5, -2}, {1, 5, -1}}));
  EXPECT_OK(Check(asked, {{0, kNoToken, 0}, {1, kNotANumber, 0}}));
  ExpectRefused(Check(asked, {{0, 5, -2}}), "drew 1 tokens for 2 samples");
  ExpectRefused(Check(asked, {{1, 5, -2}, {0, 5, -2}}),
                "drew token 0 from beam 1");
  asked.num_rows = 1;  // the prompt's
  EXPECT_OK(Check(asked, {{0, 5, -2}, {0, 5, -1}}));
}

TEST(ValidateResultTest, TokensAreAmongThoseThatMayFollow) {
  const std::vector<TokenId> first = {2, 5};
  const std::vector<TokenId> second = {4};
  for (const SelectionKind kind :
       {SelectionKind::kBeams, SelectionKind::kRows, SelectionKind::kDraws}) {
    PlanSelection asked = SelectionOf(kind);
    asked.allowed = {first, second};
    EXPECT_OK(Check(asked, {{0, 5, -1}, {1, 4, -2}}));
    ExpectRefused(Check(asked, {{0, 5, -1}, {1, 5, -2}}),
                  "token 5 after beam 1, which may not follow");
  }
}

TEST(ValidateResultTest, LogProbabilitiesAreThoseOfTheCandidates) {
  const PlanSelection asked = SelectionOf(SelectionKind::kBeams, false, 1);
  const SmallVector<Candidate> candidates = {{0, 5, -1}, {1, 4, -2}};
  EXPECT_OK(Check(asked, candidates, {Of(5, {{9, -0.5f}}), Of(4)}));
  ExpectRefused(Check(asked, candidates), "0 log-probabilities of 2 tokens");
  ExpectRefused(Check(asked, candidates, {Of(4), Of(5)}),
                "the log-probability of token 4 instead of 5");
  ExpectRefused(Check(asked, candidates, {Of(5, {{10, -0.5f}}), Of(4)}),
                "best tokens beside token 5");
  ExpectRefused(Check(asked, candidates, {Of(5), Of(4, {{1, -1}, {2, -1}})}),
                "best tokens beside token 4");
}

// Two beams of which the first is drafted to go on with 5 and then 6 or 7.
PlanSelection AskedWithPaths(int num_logprobs = -1) {
  PlanSelection asked = SelectionOf(SelectionKind::kBeams, false, num_logprobs);
  asked.num_slots = 2;
  asked.eos_token_ids = {9};
  asked.Choose<BeamSelection>().paths = {.ranks = {0, 0, 1},
                                         .drafts = {{5, 6}, {5, 7}, {4}}};
  return asked;
}

SelectionResult Replayed(std::vector<SmallVector<Candidate>> steps) {
  SelectionResult answer = {.candidates = steps[0]};
  for (size_t i = 1; i < steps.size(); ++i) {
    answer.further.push_back({.candidates = steps[i]});
  }
  return answer;
}

TEST(ValidateResultTest, StepsAfterOneAreOfTheBeamsThatItMakes) {
  const PlanSelection asked = AskedWithPaths();
  const auto check = [&](std::vector<SmallVector<Candidate>> steps) {
    return ValidateResult(asked, Replayed(std::move(steps)), kNumAnswerTokens);
  };
  EXPECT_OK(check({{{0, 5, -1}, {1, 3, -2}}}));
  EXPECT_OK(check({{{0, 5, -1}, {0, 9, -1}, {1, 4, -2}}, {{1, 2, -3}}}));
  EXPECT_OK(check({{{0, 5, -1}}, {{0, 7, -3}, {0, 6, -4}}, {{1, 2, -5}}}));
  // 3 was not drafted.
  ExpectRefused(check({{{0, 5, -1}, {1, 3, -2}}, {{0, 6, -3}}}),
                "1 steps after it that its drafts do not lead to");
  ExpectRefused(check({{{0, 5, -1}}, {{0, 3, -3}}, {{0, 3, -4}}}),
                "2 steps after it that its drafts do not lead to");
  ExpectRefused(check({{{0, 9, -1}}, {{0, 3, -3}}}), "do not lead to");
  // One beam lives.
  ExpectRefused(check({{{0, 5, -1}}, {{1, 3, -3}}}), "after beam 1 of 1");
  ExpectRefused(check({{{0, 5, -1}}, {{0, 3, -3}, {0, 3, -3}}}), "twice");
  SelectionResult nested = Replayed({{{0, 5, -1}}, {{0, 6, -3}}});
  nested.further[0].further.push_back({});
  ExpectRefused(ValidateResult(asked, nested, kNumAnswerTokens),
                "do not lead to");
}

TEST(ValidateResultTest, NoStepIsAfterOneThatVerifiedNoDrafts) {
  const PlanSelection asked = AskedWithPaths();
  SelectionResult alone = Replayed({{{0, 5, -1}}});
  alone.has_unverified_drafts = true;
  EXPECT_OK(ValidateResult(asked, alone, kNumAnswerTokens));
  SelectionResult first = Replayed({{{0, 5, -1}}, {{0, 6, -3}}});
  first.has_unverified_drafts = true;
  ExpectRefused(ValidateResult(asked, first, kNumAnswerTokens),
                "verified no drafts answered for 1 steps after it");
  SelectionResult after = Replayed({{{0, 5, -1}}, {{0, 6, -3}}});
  after.further[0].has_unverified_drafts = true;
  ExpectRefused(ValidateResult(asked, after, kNumAnswerTokens),
                "do not lead to");
}

TEST(ValidateResultTest, OnlyPathsLeadToStepsAfterOne) {
  for (const SelectionKind kind :
       {SelectionKind::kBeams, SelectionKind::kRows}) {
    ExpectRefused(ValidateResult(SelectionOf(kind),
                                 Replayed({{{0, 5, -1}}, {{0, 6, -3}}}),
                                 kNumAnswerTokens),
                  "steps after it without drafts");
  }
}

TEST(ValidateResultTest, StepsAfterOneReportLogProbabilitiesToo) {
  SelectionResult answer = Replayed({{{0, 5, -1}}, {{0, 6, -3}}});
  answer.logprobs = {Of(5)};
  ExpectRefused(ValidateResult(AskedWithPaths(0), answer, kNumAnswerTokens),
                "0 log-probabilities of 1 tokens");
  answer.further[0].logprobs = {Of(6)};
  EXPECT_OK(ValidateResult(AskedWithPaths(0), answer, kNumAnswerTokens));
}

}  // namespace
}  // namespace espalier

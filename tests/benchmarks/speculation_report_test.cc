// Differences that verify_speculation reports, and those that it accepts.
#include "benchmarks/speculate/speculation_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/speculate/two_sample_test.h"
#include "tests/few_cases.h"

namespace espalier::verify_speculation {
namespace {

using ::espalier::testing::Cases;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// `count` draws of 0 to 7, small numbers likelier; a part of them is moved from
// 0 to 1.
std::vector<int64_t> Draw(std::mt19937& random, int count, double moved = 0) {
  std::geometric_distribution<int> number(0.5);
  std::bernoulli_distribution moves(moved);
  std::vector<int64_t> cells;
  for (int i = 0; i < count; ++i) {
    int64_t cell = std::min<int64_t>(number(random), 7);
    if (cell == 0 && moves(random)) cell = 1;
    cells.push_back(cell * 1000);
  }
  return cells;
}

TEST(TwoSampleTestTest, ItsPValuesAreSound) {
  std::mt19937 random(1);
  const int num_tests = Cases(2000, 400);
  int num_below_tenth = 0;
  int num_below_hundredth = 0;
  for (int i = 0; i < num_tests; ++i) {
    const std::vector<int64_t> a = Draw(random, 60);
    const std::vector<int64_t> b = Draw(random, 90);
    const double p = TwoSampleTest(a, b).PValue(1000, i);
    num_below_tenth += p <= 0.1;
    num_below_hundredth += p <= 0.01;
  }
  // Within five standard deviations.
  const auto deviation = [&](double p) {
    return 5 * std::sqrt(num_tests * p * (1 - p));
  };
  EXPECT_NEAR(num_below_tenth, 0.1 * num_tests, deviation(0.1));
  EXPECT_LT(num_below_hundredth, 0.01 * num_tests + deviation(0.01));
}

TEST(TwoSampleTestTest, ItSeesWhatDiffers) {
  std::mt19937 random(2);
  const std::vector<int64_t> a = Draw(random, 2000);
  const std::vector<int64_t> b = Draw(random, 2000, /*moved=*/0.25);
  const int num_permutations = Cases(100000, 20000);
  EXPECT_LT(TwoSampleTest(a, b).PValue(num_permutations, 1), 1e-4);
  EXPECT_GT(TwoSampleTest(a, Draw(random, 2000)).PValue(num_permutations, 1),
            1e-3);
}

TEST(TwoSampleTestTest, WhatCannotDifferHasPValueOne) {
  const std::vector<int64_t> same(50, 3);
  EXPECT_EQ(TwoSampleTest(same, same).PValue(1000, 1), 1);
  EXPECT_EQ(TwoSampleTest(same, {}).PValue(1000, 1), 1);
}

// Rare cells are one, or every text that came once would count.
TEST(TwoSampleTestTest, TextsThatCameOnceAreNoDifference) {
  std::vector<int64_t> a, b;
  for (int i = 0; i < 500; ++i) {
    a.push_back(i);
    b.push_back(1000 + i);
  }
  EXPECT_EQ(TwoSampleTest(a, b).PValue(1000, 1), 1);
}

Generation GenerationOf(std::vector<TokenId> tokens) {
  Generation generation;
  generation.hypotheses = {
      {.tokens = std::move(tokens), .score = -0.5f, .cum_log_prob = -1.5f}};
  return generation;
}

TEST(ExactComparisonTest, EveryFieldCounts) {
  const Generation without = GenerationOf({5, 6, 7});
  std::vector<Generation> others(7, without);
  others[1].hypotheses[0].tokens[1] = 8;
  others[2].hypotheses[0].tokens.pop_back();
  others[3].hypotheses[0].score = -0.25f;
  others[4].hypotheses[0].cum_log_prob = -1.25f;
  others[5].hypotheses[0].finish_reason = FinishReason::kEos;
  others[6].hypotheses.push_back(without.hypotheses[0]);
  ExactComparison exact;
  for (size_t i = 0; i < others.size(); ++i) {
    exact.Compare(static_cast<int64_t>(i), without, others[i]);
  }
  EXPECT_EQ(exact.num_requests, 7);
  EXPECT_THAT(
      exact.differences,
      ElementsAre(
          "line 1, hypothesis 1: token 2 is 6 without and 8 with speculation",
          "line 2, hypothesis 1: 3 tokens without and 2 with speculation",
          "line 3, hypothesis 1: score -0.5 without and -0.25 with speculation",
          "line 4, hypothesis 1: cum_log_prob -1.5 without and -1.25 with "
          "speculation",
          "line 5, hypothesis 1: ends by length without and eos with "
          "speculation",
          "line 6: 1 hypotheses without and 2 with speculation"));
}

// As on a GPU.
TEST(ExactComparisonTest, WithinRoundingScoresAreTheSame) {
  Generation without = GenerationOf({5, 6, 7});
  without.hypotheses[0].logprobs = {
      {.token = 5, .log_prob = -0.5f, .rank = 1, .best = {}}};
  std::vector<Generation> others(7, without);
  others[0].hypotheses[0].score -= 0.5e-4f;
  others[0].hypotheses[0].cum_log_prob += 1.4e-4f;
  others[0].hypotheses[0].logprobs[0].log_prob -= 0.5e-4f;
  others[0].hypotheses[0].logprobs[0].rank = 2;
  others[1].hypotheses[0].score -= 1.5e-4f;
  others[2].hypotheses[0].logprobs[0].log_prob -= 1.5e-4f;
  others[3].hypotheses[0].tokens[1] = 8;
  others[4].hypotheses[0].logprobs.clear();
  others[5].hypotheses[0].logprobs[0].log_prob =
      -std::numeric_limits<float>::infinity();
  others[6].prompt_logprobs.emplace();
  SpeculationReport report;
  report.exact.tolerance = 1e-4;
  for (size_t i = 0; i < others.size(); ++i) {
    report.exact.Compare(static_cast<int64_t>(i), without, others[i]);
  }
  EXPECT_THAT(
      report.exact.differences,
      ElementsAre(HasSubstr("line 1, hypothesis 1: score"),
                  "line 2, hypothesis 1: logprobs differ",
                  "line 3, hypothesis 1: token 2 is 6 without and 8 with "
                  "speculation",
                  "line 4, hypothesis 1: logprobs differ",
                  "line 5, hypothesis 1: logprobs differ",
                  "line 6: prompt_logprobs differ"));
  EXPECT_THAT(
      Format(report),
      AllOf(HasSubstr("score for score within 0.0001 of it: 7 requests"),
            HasSubstr("verdict: DIFFERENT; on a GPU rounding")));
}

TEST(SpeculationReportTest, OneDifferenceIsEnoughForTheVerdict) {
  SpeculationReport report;
  report.exact.num_requests = 3;
  report.exact.lines_without_drafts = {6};
  report.sampled = {{.line = 4, .num_samples = 100, .p_value = 0.0008},
                    {.line = 9, .num_samples = 100, .p_value = 0.2}};
  EXPECT_EQ(report.verdict(),
            SpeculationVerdict::kEqual);  // one of two requests may be so low
  EXPECT_THAT(Format(report),
              HasSubstr("verdict: equal; but 3 of 5 requests had no draft "
                        "verified: of these nothing was shown\n"));
  EXPECT_THAT(Format(report),
              HasSubstr("rejection: 2 requests; each would be called different "
                        "with a p below 0.0005\n"));
  EXPECT_THAT(Format(report),
              HasSubstr("drafts were verified in 2 of 5 requests, but not of "
                        "lines 4, 6 and 9\n"));
  report.sampled[1].p_value = 0.0004;
  EXPECT_EQ(report.verdict(), SpeculationVerdict::kDifferent);
  EXPECT_THAT(Format(report),
              HasSubstr("line 9: p 0.0004 of 100 samples with and without: "
                        "differs\n"));
  report.sampled.clear();
  report.exact.differences = {"line 1: something"};
  EXPECT_EQ(report.verdict(), SpeculationVerdict::kDifferent);
  EXPECT_THAT(Format(report), HasSubstr("verdict: DIFFERENT\n"));
}

TEST(SpeculationReportTest, RequestsWithoutDraftsAreNamedByTheirLines) {
  Generation with = GenerationOf({5, 6});
  with.usage.num_drafted_tokens = 1;
  SpeculationReport report;
  const auto compare = [&](int64_t line, const Generation& second) {
    report.exact.Compare(line, GenerationOf({5, 6}), second);
    return Format(report);
  };
  EXPECT_THAT(compare(1, with),
              HasSubstr("drafts were verified in 1 of 1 request\n"));
  EXPECT_THAT(compare(3, GenerationOf({5, 6})),
              HasSubstr("drafts were verified in 1 of 2 requests, but not of "
                        "line 3\n"));
  for (int64_t line = 4; line < 12; ++line) compare(line, GenerationOf({5, 6}));
  report.sampled = {{.line = 2}};
  EXPECT_THAT(Format(report),
              HasSubstr("in 1 of 11 requests, but not of lines 2, 3, 4, 5, 6, "
                        "7, 8, 9, 10 and 11\n"));
  compare(12, GenerationOf({5, 6}));
  EXPECT_THAT(compare(13, GenerationOf({5, 6})),
              HasSubstr("in 1 of 13 requests, but not of lines 2, 3, 4, 5, 6, "
                        "7, 8, 9, 10, 11 and 2 more\n"));
}

// The middle one of three runs each way.
TEST(SpeculationReportTest, OnlyTimesThatSaySomethingAreCompared) {
  const auto times = [](double without, double with, int64_t num_drafted) {
    SpeculationReport report;
    report.times_without = {absl::Seconds(without), absl::Seconds(9),
                            absl::ZeroDuration()};
    report.times_with = {absl::Seconds(with), absl::ZeroDuration(),
                         absl::Seconds(9)};
    report.timed.num_drafted_tokens = num_drafted;
    return Format(report);
  };
  EXPECT_THAT(times(3, 1.5, 10),
              HasSubstr("3.000 s without, 1.500 s with speculation: 2.00 times "
                        "as fast (medians of 3 runs each, in turn)\n"));
  for (const auto& [without, with] : {std::pair(0.19, 0.3), {0.3, 0.19}}) {
    EXPECT_THAT(times(without, with, 10),
                AllOf(HasSubstr("s with speculation: too short to compare, "
                                "below 0.2 s (medians"),
                      Not(HasSubstr("as fast"))));
  }
  // Nothing was drafted: both ways are the same.
  EXPECT_THAT(times(3, 1.5, 0),
              HasSubstr("1.500 s with speculation (medians of"));
}

TEST(SpeculationReportTest, OneTokenIsOne) {
  SpeculationReport report;
  report.compared.num_target_steps = 1;
  report.compared.num_drafted_tokens = 1;
  report.compared.num_accepted_tokens = 1;
  report.timed.num_target_steps = 1;
  const std::string text = Format(report);
  EXPECT_THAT(text, HasSubstr(": drafted 1 token, accepted 1 (100.0%); "));
  EXPECT_THAT(text, HasSubstr(": drafted 0 tokens, accepted 0 (0.0%); "));
}

TEST(SpeculationReportTest, WithoutDraftsNothingWasShown) {
  SpeculationReport report;
  report.exact.Compare(1, GenerationOf({5, 6}), GenerationOf({5, 6}));
  report.sampled = {{.line = 2, .num_samples = 100}};
  EXPECT_EQ(report.verdict(), SpeculationVerdict::kNothingShown);
  EXPECT_THAT(
      Format(report),
      AllOf(HasSubstr("drafts were verified in 0 of 2 requests\n"),
            HasSubstr("verdict: none: no draft was verified, so nothing was "
                      "shown; try longer outputs (max_new_tokens), more room "
                      "in a step (--max-step-tokens, --max-beams), beams "
                      "without stop strings, texts that repeat themselves for "
                      "ngram and suffix, or --draft-model\n")));
  report.may_add_draft_model = false;
  EXPECT_THAT(Format(report),
              HasSubstr("beams without stop strings or texts that repeat "
                        "themselves for ngram and suffix\n"));
  report.sampled[0].has_drafts = true;
  EXPECT_EQ(report.verdict(), SpeculationVerdict::kEqual);
  report.sampled.clear();
  Generation with = GenerationOf({5, 6});
  with.usage.num_drafted_tokens = 1;
  report.exact.Compare(3, GenerationOf({5, 6}), with);
  EXPECT_EQ(report.verdict(), SpeculationVerdict::kEqual);
}

TEST(SpeculationReportTest, WithoutAcceptedDraftsItSaysSo) {
  SpeculationReport report;
  report.sampled = {{.line = 2, .num_samples = 100, .has_drafts = true}};
  EXPECT_THAT(Format(report), HasSubstr("verdict: equal; but no draft was "
                                        "accepted, so none saved a step\n"));
  report.compared.num_accepted_tokens = 1;
  EXPECT_THAT(Format(report), HasSubstr("verdict: equal\n"));
  // A difference without drafts is one.
  report.exact = {};
  report.exact.Compare(4, GenerationOf({5, 6}), GenerationOf({5, 7}));
  EXPECT_EQ(report.verdict(), SpeculationVerdict::kDifferent);
}

}  // namespace
}  // namespace espalier::verify_speculation

// The sampler against its twin, and its laws.
#include "kernels/sample/sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tests/few_cases.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/row_cases.h"
#include "tests/kernels/sample/random_rows.h"

namespace espalier {

inline void PrintTo(const Draw& draw, std::ostream* out) {
  *out << "{" << draw.token << ", " << draw.log_prob << "}";
}

namespace {

using ::espalier::testing::Cases;
using SampleTest = TargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, SampleTest, EachTarget(), TargetTestName);

TEST_P(SampleTest, DrawsWhatTheTwinDraws) {
  const int num_cases = Cases(2000, 400);
  std::mt19937 random(5);
  int differ = 0;
  for (int i = 0; i < num_cases; ++i) {
    RandomCase c = DrawRandomCase(random);
    c.options.edits = c.edits;
    const Draw fast = DrawRow(c.logits, c.options);
    const Draw twin = reference::DrawRow(c.logits, c.options);
    differ += fast.token != twin.token;
    EXPECT_EQ(fast.token, twin.token) << c.kind << " " << c.logits.size();
    if (fast.token != twin.token) continue;
    // Twice: without vectors, equal terms add up their roundings.
    EXPECT_TRUE(Near(fast.log_prob, twin.log_prob,
                     2 * Tolerance(c.logits.size(), twin.log_prob)))
        << fast.log_prob << " " << twin.log_prob;
  }
  std::printf("%d of %d draws differ from the twin's\n", differ, num_cases);
}

TEST_P(SampleTest, SamplesOfOneRowAreThoseDrawnOneByOne) {
  std::mt19937 random(6);
  for (int i = 0; i < Cases(500, 91); ++i) {
    RandomCase c = DrawRandomCase(random);
    c.options.edits = c.edits;
    std::vector<int> samples(1 + i % 90);
    for (int& sample : samples) sample = static_cast<int>(random() % 1000);
    const std::vector<Draw> draws = DrawSamples(c.logits, c.options, samples);
    ASSERT_EQ(draws.size(), samples.size());
    for (size_t d = 0; d < draws.size(); ++d) {
      c.options.sample = samples[d];
      ASSERT_EQ(draws[d], DrawRow(c.logits, c.options)) << c.kind;
    }
  }
}

// All tokens that come out in many draws.
std::set<TokenId> Drawn(std::span<const float> logits, SamplingParams params,
                        std::span<const TokenEdit> edits = {}) {
  std::set<TokenId> drawn;
  for (uint32_t i = 0; i < 3000; ++i) {
    drawn.insert(
        DrawRow(logits, {.params = params, .position = i, .edits = edits})
            .token);
  }
  return drawn;
}

using ::testing::ElementsAre;

TEST_P(SampleTest, FiltersThatAreOffChangeNoDraw) {
  const std::vector<float> logits = Normal(3000, 1);
  for (uint32_t i = 0; i < 500; ++i) {
    DrawOptions options = {.position = i};
    const Draw plain = DrawRow(logits, options);
    options.params.top_k = 3000;
    options.params.top_p = 1;
    options.params.typical_p = 1;
    EXPECT_EQ(DrawRow(logits, options), plain);
    options.params.top_k = 1 << 30;
    EXPECT_EQ(DrawRow(logits, options), plain);
  }
}

TEST_P(SampleTest, ATopKThatLeavesAllChangesNoDraw) {
  std::vector<float> logits = Normal(3000, 1);
  for (size_t i = 0; i < logits.size(); i += 2) logits[i] = -kInf;
  for (const float typical_p : {1.0f, 0.5f}) {
    for (uint32_t i = 0; i < 500; ++i) {
      DrawOptions options = {.params = {.typical_p = typical_p}, .position = i};
      const Draw plain = DrawRow(logits, options);
      options.params.top_k = 2000;
      ASSERT_EQ(DrawRow(logits, options), plain);
    }
  }
}

TEST_P(SampleTest, TemperatureZeroIsTheBestTokenAndTiesGoToTheLower) {
  std::vector<float> logits = Normal(3000, 2);
  logits[1500] = logits[2500] = 40;
  EXPECT_THAT(Drawn(logits, {.temperature = 0, .top_p = 0.1f}),
              ElementsAre(1500));
  const std::vector<TokenEdit> edits = {{.token = 1500, .banned = true}};
  EXPECT_THAT(Drawn(logits, {.temperature = 0}, edits), ElementsAre(2500));
}

TEST_P(SampleTest, ATinyTemperatureLeavesTheBestAndAHugeOneMakesAllEven) {
  const std::vector<float> logits = {1, 2, 3, 3, 2.999f, -kInf};
  EXPECT_THAT(Drawn(logits, {.temperature = 1e-6f}), ElementsAre(2, 3));
  EXPECT_THAT(Drawn(logits, {.temperature = 1e-45f}), ElementsAre(2, 3));
  EXPECT_THAT(Drawn(logits, {.temperature = 1e38f}),
              ElementsAre(0, 1, 2, 3, 4));
  // Ranks compare logits, so rounding does not create ties.
  EXPECT_THAT(Drawn(logits, {.temperature = 1e38f, .top_k = 3}),
              ElementsAre(2, 3, 4));
}

TEST_P(SampleTest, TokensThatTieAtTheCutStayTogether) {
  const std::vector<float> logits = {0, 1, 1, 2, 1, 0};
  EXPECT_THAT(Drawn(logits, {.top_k = 2}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Drawn(logits, {.top_p = 0.5f}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Drawn(logits, {.min_p = std::exp(-1.001f)}),
              ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Drawn(logits, {.min_p = 1.0f}), ElementsAre(3));
  EXPECT_THAT(Drawn(logits, {.top_p = 1e-6f}), ElementsAre(3));
  EXPECT_THAT(Drawn(std::vector<float>(5, -7.0f), {.top_k = 1, .top_p = 0.1f}),
              ElementsAre(0, 1, 2, 3, 4));
}

TEST_P(SampleTest, TheMostTypicalTokenStays) {
  // The entropy is 1.28 nats: 0.25 is nearest, then 0.5, then 0.15.
  const std::vector<float> logits = {std::log(0.5f), std::log(0.25f),
                                     std::log(0.15f), std::log(0.1f)};
  EXPECT_THAT(Drawn(logits, {.typical_p = 0.01f}), ElementsAre(1));
  EXPECT_THAT(Drawn(logits, {.typical_p = 0.3f}), ElementsAre(0, 1));
}

TEST_P(SampleTest, ARowWithoutAPossibleTokenHasNone) {
  const std::vector<float> nothing(100, -kInf);
  const std::vector<float> logits = {1, 2, 3};
  const std::vector<TokenEdit> bans = {{.token = 0, .banned = true},
                                       {.token = 1, .banned = true},
                                       {.token = 2, .banned = true}};
  for (const float temperature : {0.0f, 1.0f}) {
    for (const float top_p : {1.0f, 0.5f}) {
      const SamplingParams params = {.temperature = temperature,
                                     .top_p = top_p};
      EXPECT_EQ(DrawRow(nothing, {.params = params}).token, kNoToken);
      EXPECT_EQ(DrawRow(logits, {.params = params, .edits = bans}).token,
                kNoToken);
      EXPECT_EQ(
          DrawRow(logits, {.params = params, .is_allow_list = true}).token,
          kNoToken);
    }
  }
}

TEST_P(SampleTest, ANanAnywhereIsNoNumber) {
  for (const int where : {0, 63, 1000, 1024, 2999}) {
    std::vector<float> logits = Normal(3000, 3);
    logits[where] = kNan;
    for (const float temperature : {0.0f, 1.0f}) {
      EXPECT_EQ(DrawRow(logits, {.params = {.temperature = temperature}}).token,
                kNotANumber);
      // A ban does not hide it.
      const std::vector<TokenEdit> ban = {{.token = where, .banned = true}};
      EXPECT_EQ(DrawRow(logits,
                        {.params = {.temperature = temperature}, .edits = ban})
                    .token,
                kNotANumber);
    }
  }
}

TEST_P(SampleTest, PlusInfinityTakesAllEvenly) {
  std::vector<float> logits = Normal(2000, 4);
  logits[7] = logits[1999] = kInf;
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.top_k = 1},
        SamplingParams{.temperature = 3, .top_p = 0.2f, .typical_p = 0.2f}}) {
    EXPECT_THAT(Drawn(logits, params), ElementsAre(7, 1999));
  }
  EXPECT_EQ(DrawRow(logits, {}).log_prob, -std::log(2.0f));
}

TEST_P(SampleTest, OnlyEditedTokensComeOutWhereOthersAreBanned) {
  const std::vector<float> logits = Normal(3000, 5);
  const std::vector<TokenEdit> edits = {
      {.token = 5}, {.token = 1700, .bias = 9}, {.token = 2999, .bias = 9}};
  for (uint32_t i = 0; i < 200; ++i) {
    const TokenId token =
        DrawRow(logits, {.position = i, .edits = edits, .is_allow_list = true})
            .token;
    EXPECT_TRUE(token == 5 || token == 1700 || token == 2999) << token;
  }
}

TEST_P(SampleTest, TheLogProbabilityIsOfTheRawRow) {
  const std::vector<float> logits = Normal(3000, 6);
  const std::vector<TokenEdit> edits = {{.token = 123, .bias = 100}};
  const Draw draw =
      DrawRow(logits, {.params = {.temperature = 2, .top_k = 3, .top_p = 0.5f},
                       .edits = edits});
  EXPECT_EQ(draw.token, 123);
  for (const TokenScore& t : SelectRow(logits, {.num_candidates = 3000})) {
    if (t.token != 123) continue;
    EXPECT_EQ(draw.log_prob, t.log_prob);
  }
}

TEST_P(SampleTest, WhereTheRowLiesAndWhatCameBeforeDoNotMatter) {
  const std::vector<float> logits = Normal(5003, 7);
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.top_p = 0.8f},
        SamplingParams{.temperature = 1.5f, .typical_p = 0.5f},
        SamplingParams{.top_k = 4000}, SamplingParams{.top_k = 40}}) {
    for (uint32_t position = 0; position < 20; ++position) {
      const DrawOptions options = {.params = params, .position = position};
      const Draw expected = DrawRow(logits, options);
      for (int offset = 1; offset < 17; offset += 3) {
        std::vector<float> moved(offset, 99.0f);
        moved.insert(moved.end(), logits.begin(), logits.end());
        DrawRow(Normal(9000, offset), options);
        const auto row = std::span<const float>(moved).subspan(offset);
        EXPECT_EQ(DrawRow(row, options), expected) << offset;
      }
    }
  }
}

}  // namespace
}  // namespace espalier

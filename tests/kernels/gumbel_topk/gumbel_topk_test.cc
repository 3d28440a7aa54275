// Gumbel top-k: against the twin, and the distribution of its results.
#include "kernels/gumbel_topk/gumbel_topk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "tests/few_cases.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/row_cases.h"
#include "tests/p_value.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using GumbelTopKTest = TargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, GumbelTopKTest, EachTarget(), TargetTestName);

TEST_P(GumbelTopKTest, ChoosesWhatTheTwinChooses) {
  std::mt19937 random(3);
  for (int i = 0; i < 400; ++i) {
    const int vocab_size = std::vector{1, 2, 65, 1024, 1500, 5000}[i % 6];
    std::vector<float> logits = Normal(vocab_size, i);
    if (i % 5 == 0) {
      for (float& l : logits) l = std::round(l);
    }
    std::vector<TokenEdit> edits;
    for (TokenId t = i % 7; i % 2 == 0 && t < vocab_size; t += 13) {
      edits.push_back({.token = t,
                       .banned = t % 3 == 0,
                       .repeated = t % 2 == 0,
                       .bias = 0.5f});
    }
    GumbelTopKOptions options;
    options.domain =
        random() % 2 == 0 ? ScoreDomain::kLogProbs : ScoreDomain::kLogits;
    options.num_candidates = std::vector{1, 4, 100}[random() % 3];
    options.draw.params.temperature =
        std::vector{1.0f, 0.0f, 0.7f, 2.0f}[random() % 4];
    options.draw.params.top_k = std::vector{0, 30, 900}[random() % 3];
    options.draw.params.top_p = random() % 2 == 0 ? 1.0f : 0.8f;
    options.draw.params.typical_p = random() % 2 == 0 ? 1.0f : 0.6f;
    options.draw.params.seed = i;
    options.draw.repetition_penalty = 1.2f;
    options.draw.edits = edits;
    options.renormalizes = i % 3 == 0;
    const Scores fast = GumbelTopK(logits, options);
    const Scores twin = reference::GumbelTopK(logits, options);
    EXPECT_EQ(TokensOf(fast), TokensOf(twin)) << i;
    for (size_t k = 0; k < std::min(fast.size(), twin.size()); ++k) {
      EXPECT_TRUE(Near(fast[k].log_prob, twin[k].log_prob,
                       4 * Tolerance(vocab_size, twin[k].log_prob)));
    }
    const std::vector<float> values = TokenValues(logits, options);
    const std::vector<float> twins = reference::TokenValues(logits, options);
    ASSERT_EQ(values.size(), twins.size());
    for (size_t t = 0; t < values.size(); ++t) {
      EXPECT_TRUE(
          Near(values[t], twins[t], 4 * Tolerance(vocab_size, twins[t])))
          << i << ", token " << t << ": " << values[t] << ", " << twins[t];
    }
    if (options.draw.params.greedy()) continue;
    for (const TokenScore& chosen : fast) {
      EXPECT_EQ(values[chosen.token], chosen.log_prob) << i;
    }
  }
}

// Two draws without replacement, in both domains: the first by its probability,
// the second by the renormalized rest.
TEST_P(GumbelTopKTest, TwoBestAreADrawWithoutReplacement) {
  const std::vector<float> logits = {0.3f, 1.1f, -0.4f, 0.9f, -2.0f};
  const int size = static_cast<int>(logits.size());
  const uint32_t num_draws = testing::Cases(100000, 5000);
  for (const ScoreDomain domain :
       {ScoreDomain::kLogProbs, ScoreDomain::kLogits}) {
    GumbelTopKOptions options = {.domain = domain, .num_candidates = 2};
    options.draw.params = {.temperature = 0.8f, .seed = 4};
    const std::vector<double> p =
        reference::DrawProbabilities(logits, options.draw);
    std::vector<double> pairs(size * size);
    for (int a = 0; a < size; ++a) {
      for (int b = 0; b < size; ++b) {
        if (a != b) pairs[a * size + b] = p[a] * p[b] / (1 - p[a]);
      }
    }
    std::vector<int64_t> counts(pairs.size());
    for (uint32_t i = 0; i < num_draws; ++i) {
      options.draw.sample = i % 5;
      options.draw.position = i / 5;
      const Scores best = GumbelTopK(logits, options);
      ++counts[best[0].token * size + best[1].token];
    }
    EXPECT_GE(testing::ChiSquarePValue(pairs, counts), 1e-6);
  }
}

TEST_P(GumbelTopKTest, ValuesAreWhatTheirDomainSays) {
  const std::vector<float> logits = {2, 1, 0, -1};
  const std::vector<TokenEdit> edits = {{.token = 0, .bias = 0.5f}};
  GumbelTopKOptions options = {.num_candidates = 4};
  options.draw.params = {.temperature = 2, .top_k = 2};
  options.draw.edits = edits;
  const double log_sum =
      std::log(std::exp(2.0) + std::exp(1.0) + 1 + std::exp(-1.0));
  std::map<TokenId, float> values;
  for (const TokenScore& t : GumbelTopK(logits, options)) {
    values[t.token] = t.log_prob;
  }
  EXPECT_EQ(values.size(), 2);
  EXPECT_NEAR(values[0], (2 - log_sum + 0.5) / 2, 1e-6);
  EXPECT_NEAR(values[1], (1 - log_sum) / 2, 1e-6);
  options.domain = ScoreDomain::kLogits;
  values.clear();
  for (const TokenScore& t : GumbelTopK(logits, options)) {
    values[t.token] = t.log_prob;
  }
  EXPECT_EQ(values.size(), 2);
  EXPECT_NEAR(values[0], -std::log1p(std::exp(-0.75)), 1e-6);
  EXPECT_NEAR(values[1], -std::log1p(std::exp(0.75)), 1e-6);
}

TEST_P(GumbelTopKTest, TheOrderIsThatOfValuesWithTheirNoise) {
  const std::vector<float> logits = Normal(3000, 8);
  GumbelTopKOptions options = {.num_candidates = 300};
  options.draw.params.seed = 6;
  options.draw.sample = 3;
  options.draw.position = 9;
  const Scores best = GumbelTopK(logits, options);
  ASSERT_EQ(best.size(), 300);
  double last = HUGE_VAL;
  for (const TokenScore& t : best) {
    const double score = t.log_prob + Gumbel(GumbelKey(6, 3, 9), t.token);
    EXPECT_LE(score, last);
    last = score;
  }
}

TEST_P(GumbelTopKTest, DegenerateRowsAreDefined) {
  for (const ScoreDomain domain :
       {ScoreDomain::kLogProbs, ScoreDomain::kLogits}) {
    const GumbelTopKOptions options = {.domain = domain, .num_candidates = 3};
    EXPECT_THAT(GumbelTopK(std::vector<float>(70, -kInf), options), IsEmpty());
    EXPECT_THAT(GumbelTopK(std::vector<float>{1, kNan, 2}, options),
                ElementsAre(TokenScore{kNotANumber, 0}));
    const Scores infinite =
        GumbelTopK(std::vector<float>{kInf, 1, kInf, -kInf}, options);
    EXPECT_EQ(infinite.size(), 2);
    for (const TokenScore& t : infinite) {
      EXPECT_EQ(t.log_prob, -std::log(2.0f));
    }
  }
}

}  // namespace
}  // namespace espalier

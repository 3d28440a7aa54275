// Stochastic beams against the distribution over all sequences, which a toy
// model's vocabulary and a short length make enumerable.
#include "beam/strategy/stochastic_beam_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "beam/strategy/selection_options.h"
#include "kernels/gumbel_topk/gumbel.h"
#include "kernels/gumbel_topk/gumbel_topk.h"
#include "kernels/sample/sample.h"
#include "tests/beam/search_alone.h"
#include "tests/few_cases.h"
#include "tests/p_value.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::Cases;
using ::testing::HasSubstr;
using testing::kLeastPValue;
using testing::LogitsModel;
using testing::SearchAsTheEngine;
using testing::StatusIs;
using testing::ToyLogitsModel;
using Tokens = std::vector<TokenId>;

constexpr int kVocabSize = 4;
constexpr int kMaxLength = 3;

LogitsModel SomeModel() {
  return ToyLogitsModel({.vocab_size = kVocabSize, .seed = 5});
}

Request SomeRequest(int64_t num_beams, uint64_t seed) {
  Request request;
  request.prompt_tokens = {3};
  request.params.num_beams = num_beams;
  request.params.num_return_sequences = num_beams;
  request.params.stochastic = true;
  request.params.max_new_tokens = kMaxLength;
  request.params.eos_token_id = {0};
  request.params.seed = seed;
  return request;
}

// The log-probability of every sequence.
using Distribution = std::map<Tokens, double>;

void EnumerateDraws(const LogitsModel& model, const Request& request,
                    const Tokens& tokens, double log_prob, Distribution* all) {
  Tokens history = request.prompt_tokens;
  history.insert(history.end(), tokens.begin(), tokens.end());
  const std::vector<double> next = reference::DrawProbabilities(
      model(history),
      {.params = MakeSelectionParams(request.params)->sampling});
  for (TokenId token = 0; token < std::ssize(next); ++token) {
    if (next[token] == 0) continue;
    Tokens child = tokens;
    child.push_back(token);
    const double child_log_prob = log_prob + std::log(next[token]);
    if (token == 0 || child.size() == request.params.max_new_tokens) {
      (*all)[child] = child_log_prob;
    } else {
      EnumerateDraws(model, request, child, child_log_prob, all);
    }
  }
}

Distribution AllSequences(const LogitsModel& model, const Request& request) {
  Distribution all;
  EnumerateDraws(model, request, {}, 0, &all);
  return all;
}

TEST(ShiftToMaximumTest, TheMaximumBecomesTheParents) {
  EXPECT_EQ(ShiftToMaximum(3.5, 3.5, -1.25), -1.25);
}

// Against the formula of the paper, where that loses no digits:
// -log(exp(-T) - exp(-Z) + exp(-g)).
TEST(ShiftToMaximumTest, IsTheTruncatedGumbelOfThePaper) {
  for (const double parent : {-2.0, 0.0, 1.5}) {
    for (const double maximum : {-1.0, 0.5, 2.0}) {
      for (const double below : {0.01, 0.5, 2.0, 6.0}) {
        const double gumbel_top_k = maximum - below;
        const double expected = -std::log(
            std::exp(-parent) - std::exp(-maximum) + std::exp(-gumbel_top_k));
        EXPECT_NEAR(ShiftToMaximum(gumbel_top_k, maximum, parent), expected,
                    1e-10);
      }
    }
  }
}

TEST(ShiftToMaximumTest, KeepsTheOrderAndStaysFiniteFarBelow) {
  double last = std::numeric_limits<double>::infinity();
  for (const double gumbel_top_k :
       {40.0, 39.999999999, 30.0, 0.0, -50.0, -900.0}) {
    const double shifted = ShiftToMaximum(gumbel_top_k, 40.0, -3.0);
    EXPECT_LE(shifted, last);
    EXPECT_TRUE(std::isfinite(shifted));
    last = shifted;
  }
}

TEST(StochasticBeamStrategyTest, GivesDifferentSequencesInTheOrderOfTheDraw) {
  const LogitsModel model = SomeModel();
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Request request = SomeRequest(6, seed);
    const Distribution all = AllSequences(model, request);
    ASSERT_OK_AND_ASSIGN(const Result result,
                         SearchAsTheEngine(model, request));
    ASSERT_EQ(result.hypotheses.size(), 6);
    std::set<Tokens> distinct;
    float last = std::numeric_limits<float>::infinity();
    for (const Hypothesis& hypothesis : result.hypotheses) {
      EXPECT_TRUE(distinct.insert(hypothesis.tokens).second);
      EXPECT_NEAR(hypothesis.cum_log_prob, all.at(hypothesis.tokens), 1e-5);
      EXPECT_LT(hypothesis.score, last);
      last = hypothesis.score;
    }
    ASSERT_TRUE(result.threshold.has_value());
    EXPECT_LT(*result.threshold, last);
  }
}

// The first of a draw is one sample; given it, the second is one of the rest.
TEST(StochasticBeamStrategyTest, DrawsInTurnFromWhatIsLeft) {
  const LogitsModel model = SomeModel();
  const Distribution all = AllSequences(model, SomeRequest(2, 0));
  std::map<Tokens, int> index;
  for (const auto& [tokens, log_prob] : all) {
    index.emplace(tokens, static_cast<int>(index.size()));
  }
  const size_t count = all.size();
  std::vector<int> counts(count * count);
  const uint64_t num_draws = Cases(60000, 3000);
  for (uint64_t seed = 0; seed < num_draws; ++seed) {
    ASSERT_OK_AND_ASSIGN(const Result result,
                         SearchAsTheEngine(model, SomeRequest(2, seed)));
    const int first = index.at(result.hypotheses[0].tokens);
    ++counts[first * count + index.at(result.hypotheses[1].tokens)];
  }
  std::vector<double> probabilities;
  for (const auto& [a, log_a] : all) {
    for (const auto& [b, log_b] : all) {
      const double left = 1 - std::exp(log_a);
      probabilities.push_back(a == b ? 0 : std::exp(log_a + log_b) / left);
    }
  }
  const double p_value = testing::ChiSquarePValue(probabilities, counts);
  std::printf("ordered pairs of %zu sequences: p = %.3g\n", count, p_value);
  EXPECT_GE(p_value, kLeastPValue);
}

// The probability of each sequence to be among the k, by enumeration of all
// ordered draws.
void AddInclusions(const std::vector<double>& p, int k, double so_far,
                   double left, std::vector<bool>* drawn,
                   std::vector<double>* inclusions) {
  if (k == 0) {
    for (size_t i = 0; i < p.size(); ++i) {
      if ((*drawn)[i]) (*inclusions)[i] += so_far;
    }
    return;
  }
  for (size_t i = 0; i < p.size(); ++i) {
    if ((*drawn)[i]) continue;
    (*drawn)[i] = true;
    AddInclusions(p, k - 1, so_far * p[i] / left, left - p[i], drawn,
                  inclusions);
    (*drawn)[i] = false;
  }
}

TEST(StochasticBeamStrategyTest, InclusionProbabilitiesAreThoseOfTheDraw) {
  const int num_runs = Cases(40000, 2000);
  constexpr int kNumBeams = 3;
  const LogitsModel model = SomeModel();
  const Distribution all = AllSequences(model, SomeRequest(kNumBeams, 0));
  std::vector<double> p;
  std::map<Tokens, int> counts;
  for (const auto& [tokens, log_prob] : all) p.push_back(std::exp(log_prob));
  std::vector<double> inclusions(p.size());
  std::vector<bool> drawn(p.size());
  AddInclusions(p, kNumBeams, 1, 1, &drawn, &inclusions);
  for (int seed = 0; seed < num_runs; ++seed) {
    ASSERT_OK_AND_ASSIGN(
        const Result result,
        SearchAsTheEngine(model, SomeRequest(kNumBeams, seed)));
    for (const Hypothesis& h : result.hypotheses) ++counts[h.tokens];
  }
  double least = 1;
  size_t i = 0;
  for (const auto& [tokens, log_prob] : all) {
    const double q = inclusions[i++];
    const double z =
        (counts[tokens] - num_runs * q) / std::sqrt(num_runs * q * (1 - q));
    least = std::min(least, testing::NormalPValue(z));
  }
  std::printf("inclusion of %zu sequences, least p = %.3g\n", p.size(), least);
  // As many are tried as there are sequences.
  EXPECT_GE(least * static_cast<double>(p.size()), kLeastPValue);
}

// The estimate of sum_y p(y) f(y) from one draw: the paper's equation 14.
double Estimate(const Result& result,
                const std::function<double(const Hypothesis&)>& f) {
  double sum = 0;
  for (const Hypothesis& hypothesis : result.hypotheses) {
    const double log_prob = hypothesis.cum_log_prob;
    const double inclusion =
        result.threshold.has_value()
            ? -std::expm1(-std::exp(log_prob - *result.threshold))
            : 1;
    sum += std::exp(log_prob) / inclusion * f(hypothesis);
  }
  return sum;
}

void ExpectUnbiased(const char* what, const Request& base, double expected,
                    const std::function<double(const Hypothesis&)>& f) {
  const int num_runs = Cases(40000, 2000);
  const LogitsModel model = SomeModel();
  double sum = 0;
  double squares = 0;
  for (int seed = 0; seed < num_runs; ++seed) {
    Request request = base;
    request.params.seed = 1000000 + seed;
    ASSERT_OK_AND_ASSIGN(const Result result,
                         SearchAsTheEngine(model, request));
    const double estimate = Estimate(result, f);
    sum += estimate;
    squares += estimate * estimate;
  }
  const double mean = sum / num_runs;
  const double deviation =
      std::sqrt((squares / num_runs - mean * mean) / num_runs);
  const double z = (mean - expected) / deviation;
  std::printf("%s: mean %.5f, expected %.5f, p = %.3g\n", what, mean, expected,
              testing::NormalPValue(z));
  EXPECT_GE(testing::NormalPValue(z), kLeastPValue);
}

double Expectation(const Distribution& all,
                   const std::function<double(const Hypothesis&)>& f) {
  double sum = 0;
  for (const auto& [tokens, log_prob] : all) {
    sum += std::exp(log_prob) * f({.tokens = tokens});
  }
  return sum;
}

double Length(const Hypothesis& hypothesis) {
  return static_cast<double>(hypothesis.tokens.size());
}

double One(const Hypothesis&) { return 1; }

TEST(StochasticBeamStrategyTest, ImportanceWeightsByTheThresholdAreUnbiased) {
  for (const int64_t num_beams : {1, 3, 8}) {
    const Request request = SomeRequest(num_beams, 0);
    const Distribution all = AllSequences(SomeModel(), request);
    ExpectUnbiased("number of sequences", request, 1, One);
    ExpectUnbiased("length", request, Expectation(all, Length), Length);
  }
}

TEST(StochasticBeamStrategyTest, DrawsFromTheDistributionOfTheFilters) {
  Request request = SomeRequest(3, 0);
  request.params.temperature = 0.7;
  request.params.top_k = 3;
  const Distribution all = AllSequences(SomeModel(), request);
  ExpectUnbiased("number of sequences, filtered", request, 1, One);
  ExpectUnbiased("length, filtered", request, Expectation(all, Length), Length);
}

TEST(StochasticBeamStrategyTest, BeamsForAllSequencesGiveThemAll) {
  const Request request = SomeRequest(100, 7);
  const Distribution all = AllSequences(SomeModel(), request);
  ASSERT_OK_AND_ASSIGN(const Result result,
                       SearchAsTheEngine(SomeModel(), request));
  EXPECT_EQ(result.hypotheses.size(), all.size());
  EXPECT_EQ(result.threshold, std::nullopt);
  EXPECT_NEAR(Estimate(result, One), 1, 1e-5);
}

TEST(StochasticBeamStrategyTest, ARowWithoutATokenIsAnError) {
  const auto nothing = [](std::span<const TokenId>) {
    return std::vector<float>(kVocabSize,
                              -std::numeric_limits<float>::infinity());
  };
  EXPECT_THAT(SearchAsTheEngine(nothing, SomeRequest(3, 0)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no token is possible after 0")));
  const auto nan = [](std::span<const TokenId> history) {
    std::vector<float> logits(kVocabSize, 1.0f);
    if (history.size() > 1) {
      logits[2] = std::numeric_limits<float>::quiet_NaN();
    }
    return logits;
  };
  EXPECT_THAT(SearchAsTheEngine(nan, SomeRequest(3, 0)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("NaN")));
}

}  // namespace
}  // namespace espalier

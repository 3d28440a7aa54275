// models/en-fr against log-probabilities that transformers computed in
// float64: 24 sequences, the 12 best tokens after every position.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/value_to.hpp>
#include <cmath>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/llama_model.h"
#include "tests/model/feeder.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::FeedAlone;
using ::espalier::testing::Lines;

constexpr double kTolerance = 1e-4;

struct Example {
  std::vector<TokenId> tokens;
  std::vector<std::vector<TokenId>> top_tokens;
  std::vector<std::vector<double>> top_log_probs;
};

std::vector<Example> ReadExamples() {
  std::ifstream file(ESPALIER_SOURCE_DIR "/tests/data/logprobs.jsonl");
  std::vector<Example> examples;
  for (std::string line; std::getline(file, line);) {
    const json::value value = *ParseJson(line);
    examples.push_back(
        {json::value_to<std::vector<TokenId>>(value.at("tokens")),
         json::value_to<std::vector<std::vector<TokenId>>>(
             value.at("top_tokens")),
         json::value_to<std::vector<std::vector<double>>>(
             value.at("top_logprobs"))});
  }
  return examples;
}

std::vector<double> LogProbs(const std::vector<float>& logits) {
  const double maximum = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - maximum);
  std::vector<double> log_probs;
  for (const float logit : logits) {
    log_probs.push_back(logit - maximum - std::log(sum));
  }
  return log_probs;
}

std::vector<TokenId> BestTokens(const std::vector<double>& log_probs,
                                size_t count) {
  std::vector<TokenId> tokens(log_probs.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  std::partial_sort(
      tokens.begin(), tokens.begin() + count, tokens.end(),
      [&](TokenId a, TokenId b) { return log_probs[a] > log_probs[b]; });
  tokens.resize(count);
  return tokens;
}

void ExpectMatches(const std::vector<float>& logits,
                   const std::vector<TokenId>& tokens,
                   const std::vector<double>& expected) {
  const std::vector<double> log_probs = LogProbs(logits);
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_NEAR(log_probs[tokens[i]], expected[i], kTolerance)
        << "token " << tokens[i];
  }
  const std::vector<TokenId> best = BestTokens(log_probs, tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (best[i] == tokens[i]) continue;
    // Another token may stand here only if the reference has it within the
    // tolerance; past its list's end, our own value must be that close.
    const auto found = std::find(tokens.begin(), tokens.end(), best[i]);
    const double value = found == tokens.end()
                             ? log_probs[best[i]]
                             : expected[found - tokens.begin()];
    EXPECT_NEAR(value, expected[i], kTolerance) << "rank " << i;
  }
}

TEST(LogProbsTest, EveryPositionOfEveryReferenceSequenceMatches) {
  ThreadPool pool(2);
  ASSERT_OK_AND_ASSIGN(
      const auto model,
      LlamaModel::Load(ESPALIER_SOURCE_DIR "/models/en-fr", {}, &pool));
  const std::vector<Example> examples = ReadExamples();
  ASSERT_EQ(examples.size(), 24u);
  for (const Example& example : examples) {
    const int num_tokens = static_cast<int>(example.tokens.size());
    const Lines whole = FeedAlone(model.get(), example.tokens, num_tokens);
    ASSERT_EQ(example.top_tokens.size(), whole.size());
    for (int t = 0; t < num_tokens; ++t) {
      SCOPED_TRACE(::testing::Message() << "after token " << t);
      ExpectMatches(whole[t], example.top_tokens[t], example.top_log_probs[t]);
    }
    EXPECT_EQ(FeedAlone(model.get(), example.tokens, 1), whole);
    EXPECT_EQ(FeedAlone(model.get(), example.tokens, 3), whole);
  }
}

}  // namespace
}  // namespace espalier

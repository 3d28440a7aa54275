#include "tests/model/logprobs_examples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace espalier::testing {
namespace {

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

void ExpectLogitsRow(const std::vector<float>& logits,
                     const std::vector<TokenId>& tokens,
                     const std::vector<double>& expected, double tolerance) {
  const std::vector<double> log_probs = LogProbs(logits);
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_NEAR(log_probs[tokens[i]], expected[i], tolerance)
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
    EXPECT_NEAR(value, expected[i], tolerance) << "rank " << i;
  }
}

}  // namespace

void ExpectLogProbs(const LogitsRows& logits_rows,
                    const LogProbsExample& example, double tolerance) {
  ASSERT_EQ(logits_rows.size(), example.top_tokens.size());
  for (size_t t = 0; t < logits_rows.size(); ++t) {
    SCOPED_TRACE(::testing::Message() << "after token " << t);
    ExpectLogitsRow(logits_rows[t], example.top_tokens[t],
                    example.top_log_probs[t], tolerance);
  }
}

}  // namespace espalier::testing

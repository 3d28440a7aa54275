#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/float_limits.h"
#include "kernels/logprobs/logprobs.h"

namespace espalier::reference {
namespace {

// exp(logit - max), where the difference of equal infinities is 0.
double Weight(float logit, float max) {
  return logit == max ? 1.0 : std::exp(static_cast<double>(logit) - max);
}

}  // namespace

RowLogProbs LogProbsOfRow(std::span<const float> logits,
                          std::span<const TokenId> tokens, int num_best) {
  std::vector<float> row(logits.begin(), logits.end());
  for (float& logit : row) {
    if (std::isnan(logit)) logit = -kInf;
  }
  std::vector<TokenId> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return row[a] > row[b]; });
  const float max = row[order.front()];
  double sum = 0;
  for (const float logit : row) sum += Weight(logit, max);
  const auto log_prob = [&](TokenId token) {
    if (max == -kInf) return -kInf;
    return static_cast<float>(std::log(Weight(row[token], max)) -
                              std::log(sum));
  };
  RowLogProbs result;
  for (const TokenId token : tokens) {
    const auto higher = std::count_if(row.begin(), row.end(),
                                      [&](float l) { return l > row[token]; });
    result.tokens.push_back({log_prob(token), 1 + static_cast<int>(higher)});
  }
  for (const TokenId token : order) {
    if (std::ssize(result.best) == num_best || row[token] == -kInf) break;
    result.best.push_back({token, log_prob(token)});
  }
  return result;
}

double LogMassOf(std::span<const float> logits,
                 std::span<const TokenId> tokens) {
  const auto logit_of = [&](TokenId token) {
    return std::isnan(logits[token]) ? -kInf : logits[token];
  };
  float max = -kInf;
  for (TokenId token = 0; token < std::ssize(logits); ++token) {
    max = std::max(max, logit_of(token));
  }
  if (max == -kInf) return -kInf;
  double all = 0, some = 0;
  for (TokenId token = 0; token < std::ssize(logits); ++token) {
    all += Weight(logit_of(token), max);
  }
  for (const TokenId token : tokens) some += Weight(logit_of(token), max);
  return std::log(some / all);
}

}  // namespace espalier::reference

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/float_limits.h"
#include "kernels/gumbel_topk/gumbel_topk.h"

namespace espalier::reference {
namespace {

struct NoisyToken {
  TokenScore token;
  double score;
};

// In float32, as select.h has it.
std::vector<float> LogSoftmax(std::span<const float> logits) {
  const float max = *std::max_element(logits.begin(), logits.end());
  if (max == -kInf) return {logits.begin(), logits.end()};
  const auto difference = [&](auto logit) {
    return logit == max ? 0 : logit - max;
  };
  double sum = 0;
  for (const double logit : logits) sum += std::exp(difference(logit));
  std::vector<float> log_probs;
  for (const float logit : logits) {
    log_probs.push_back(difference(logit) - static_cast<float>(std::log(sum)));
  }
  return log_probs;
}

// Returns -inf for dropped tokens.
std::vector<float> Values(std::span<const float> logits,
                          const GumbelTopKOptions& options) {
  const SamplingParams& params = options.draw.params;
  const std::vector<float> edited =
      options.domain == ScoreDomain::kLogProbs
          ? EditedScores(LogSoftmax(logits), options.draw)
          : EditedScores(logits, options.draw);
  const bool normalized =
      options.domain == ScoreDomain::kLogits || options.renormalizes;
  const std::vector<double> drawn = DrawLogProbabilities(edited, params);
  const float temperature = params.greedy() ? 1.0f : params.temperature;
  std::vector<float> values;
  for (size_t t = 0; t < drawn.size(); ++t) {
    const bool out = std::isinf(drawn[t]);
    values.push_back(out          ? -kInf
                     : normalized ? static_cast<float>(drawn[t])
                                  : edited[t] / temperature);
  }
  return values;
}

}  // namespace

std::vector<float> TokenValues(std::span<const float> logits,
                               GumbelTopKOptions options) {
  if (options.draw.params.greedy()) options.draw.params = {};
  std::vector<float> numbers(logits.begin(), logits.end());
  for (float& logit : numbers) {
    if (std::isnan(logit)) logit = -kInf;
  }
  return Values(numbers, options);
}

std::vector<TokenScore> GumbelTopK(std::span<const float> logits,
                                   const GumbelTopKOptions& options) {
  const auto is_nan = [](float x) { return std::isnan(x); };
  if (std::any_of(logits.begin(), logits.end(), is_nan)) {
    return {{kNotANumber, 0.0f}};
  }
  const std::vector<float> values = Values(logits, options);
  const DrawOptions& draw = options.draw;
  const RandomKey key = GumbelKey(draw.params.seed, draw.sample, draw.position);
  std::vector<NoisyToken> tokens;
  for (TokenId t = 0; t < std::ssize(values); ++t) {
    if (values[t] == -kInf) continue;
    tokens.push_back({{t, values[t]}, values[t] + Gumbel(key, t)});
  }
  std::stable_sort(
      tokens.begin(), tokens.end(),
      [](const auto& a, const auto& b) { return a.score > b.score; });
  if (std::ssize(tokens) > options.num_candidates) {
    tokens.resize(options.num_candidates);
  }
  std::vector<TokenScore> best;
  for (const NoisyToken& p : tokens) best.push_back(p.token);
  return best;
}

}  // namespace espalier::reference

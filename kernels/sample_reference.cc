#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/random.h"
#include "kernels/sample.h"

namespace espalier::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// The edited logits, exact to float32's operations.
std::vector<float> EditedLogits(std::span<const float> logits,
                                const DrawOptions& options) {
  std::vector<float> edited(logits.begin(), logits.end());
  if (options.only_edited) {
    std::fill(edited.begin(), edited.end(),
              -std::numeric_limits<float>::infinity());
  }
  for (const TokenEdit& edit : options.edits) {
    edited[edit.token] = edit.banned ? -std::numeric_limits<float>::infinity()
                                     : EditedScore(logits[edit.token], edit,
                                                   options.repetition_penalty);
  }
  return edited;
}

void Normalise(std::vector<double>& p) {
  double sum = 0;
  for (const double x : p) sum += x;
  for (double& x : p) x /= sum;
}

// exp(logit / temperature), normalised; +inf takes all.
std::vector<double> Softmax(std::span<const float> logits, double temperature) {
  const double max = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  for (const float logit : logits) {
    p.push_back(logit == max ? 1.0 : std::exp((logit - max) / temperature));
  }
  Normalise(p);
  return p;
}

// Puts out what is `worse`-ranked than tokens that have `bound` together.
// `rank` orders tokens, the first to stay first; equals stay or go together.
void KeepFirst(double bound, const std::vector<double>& rank,
               std::vector<double>& p) {
  std::vector<int> order;
  for (size_t t = 0; t < p.size(); ++t) {
    if (p[t] > 0) order.push_back(static_cast<int>(t));
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return rank[a] < rank[b]; });
  double before = 0;  // of all that rank before the run of equals
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    double run = 0;
    while (end < order.size() && rank[order[end]] == rank[order[begin]]) {
      run += p[order[end++]];
    }
    if (before >= bound) {
      for (size_t i = begin; i < order.size(); ++i) p[order[i]] = 0;
      break;
    }
    before += run;
    begin = end;
  }
  Normalise(p);
}

void MinP(const SamplingParams& params, std::vector<double>& p) {
  if (params.min_p == 0.0f) return;
  const double bound = params.min_p * *std::max_element(p.begin(), p.end());
  for (double& x : p) x = x < bound ? 0 : x;
  Normalise(p);
}

void TopK(const SamplingParams& params, std::vector<double>& p) {
  if (params.top_k == 0 || params.top_k >= std::ssize(p)) return;
  std::vector<double> sorted = p;
  std::nth_element(sorted.begin(), sorted.begin() + params.top_k - 1,
                   sorted.end(), std::greater<>());
  const double bound = sorted[params.top_k - 1];
  for (double& x : p) x = x < bound ? 0 : x;
  Normalise(p);
}

void TopP(const SamplingParams& params, std::vector<double>& p) {
  if (params.top_p == 1.0f) return;
  std::vector<double> rank;
  for (const double x : p) rank.push_back(-x);
  KeepFirst(params.top_p, rank, p);
}

void Typical(const SamplingParams& params, std::vector<double>& p) {
  if (params.typical_p == 1.0f) return;
  double entropy = 0;
  for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
  std::vector<double> rank;
  for (const double x : p) {
    rank.push_back(x > 0 ? std::abs(-std::log(x) - entropy) : kInf);
  }
  KeepFirst(params.typical_p, rank, p);
}

float RawLogProb(std::span<const float> logits, TokenId token) {
  const double p = Softmax(logits, 1.0)[token];
  const double max = *std::max_element(logits.begin(), logits.end());
  if (std::isinf(max) || p > 0) return static_cast<float>(std::log(p));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  return static_cast<float>(logits[token] - max - std::log(sum));
}

}  // namespace

std::vector<double> DrawProbabilities(std::span<const float> logits,
                                      const DrawOptions& options) {
  const std::vector<float> edited = EditedLogits(logits, options);
  const auto best = std::max_element(edited.begin(), edited.end());
  std::vector<double> p(edited.size());
  if (*best == -std::numeric_limits<float>::infinity()) return p;
  const SamplingParams& params = options.params;
  if (params.greedy()) {
    p[best - edited.begin()] = 1;
    return p;
  }
  p = Softmax(edited, params.temperature);
  MinP(params, p);
  TopK(params, p);
  TopP(params, p);
  Typical(params, p);
  return p;
}

Draw DrawRow(std::span<const float> logits, const DrawOptions& options) {
  const auto is_nan = [](float x) { return std::isnan(x); };
  if (std::any_of(logits.begin(), logits.end(), is_nan)) {
    return {.token = kNotANumber};
  }
  const std::vector<double> p = DrawProbabilities(logits, options);
  const RandomKey key = {.seed = options.params.seed,
                         .sample = options.sample,
                         .position = options.position,
                         .purpose = RandomPurpose::kDraw};
  const double uniform = Uniform(key, 0);
  TokenId token = kNoToken;
  double sum = 0;
  for (size_t t = 0; t < p.size() && sum <= uniform; ++t) {
    if (p[t] == 0) continue;
    token = static_cast<TokenId>(t);
    sum += p[t];
  }
  if (token == kNoToken) return {};
  return {.token = token, .log_prob = RawLogProb(logits, token)};
}

}  // namespace espalier::reference

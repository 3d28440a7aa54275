#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/float_limits.h"
#include "kernels/sample/random.h"
#include "kernels/sample/sample.h"

namespace espalier::reference {
namespace {

// Log-probabilities of the tokens left: nats, -inf for dropped ones.
using LogProbs = std::vector<double>;

// Makes all probabilities sum to 1.
void Normalise(LogProbs& log_probs) {
  double sum = 0;
  for (const double x : log_probs) sum += std::exp(x);
  for (double& x : log_probs) x -= std::log(sum);
}

// Returns (score - max) / temperature; +inf drops all others.
LogProbs Tempered(std::span<const float> scores, double temperature) {
  const double max = *std::max_element(scores.begin(), scores.end());
  LogProbs tempered;
  for (const float score : scores) {
    tempered.push_back(score == max ? 0 : (score - max) / temperature);
  }
  return tempered;
}

// Drops tokens that rank after tokens that have `bound` together. Lower ranks
// stay first; equal ranks stay or go together.
void KeepFirst(double bound, const std::vector<double>& rank,
               LogProbs& log_probs) {
  std::vector<int> order;
  for (size_t t = 0; t < log_probs.size(); ++t) {
    if (log_probs[t] > -kInf) order.push_back(static_cast<int>(t));
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return rank[a] < rank[b]; });
  double before = 0;  // mass ranked before the run of equals
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    double run = 0;
    while (end < order.size() && rank[order[end]] == rank[order[begin]]) {
      run += std::exp(log_probs[order[end++]]);
    }
    if (before >= bound) {
      for (size_t i = begin; i < order.size(); ++i) {
        log_probs[order[i]] = -kInf;
      }
      break;
    }
    before += run;
    begin = end;
  }
  Normalise(log_probs);
}

// Filters `tempered`, in which the likeliest token has 0.
void MinP(double min_p, LogProbs& tempered) {
  for (double& x : tempered) x = std::exp(x) < min_p ? -kInf : x;
}

void TopK(int top_k, std::span<const float> scores, LogProbs& log_probs) {
  if (top_k == 0 || top_k >= std::ssize(scores)) return;
  std::vector<float> left;
  for (size_t t = 0; t < scores.size(); ++t) {
    if (log_probs[t] > -kInf) left.push_back(scores[t]);
  }
  if (top_k >= std::ssize(left)) return;
  std::nth_element(left.begin(), left.begin() + top_k - 1, left.end(),
                   std::greater<>());
  for (size_t t = 0; t < scores.size(); ++t) {
    if (scores[t] < left[top_k - 1]) log_probs[t] = -kInf;
  }
}

void TopP(double top_p, std::span<const float> scores, LogProbs& log_probs) {
  if (top_p == 1) return;
  std::vector<double> rank;
  for (const double score : scores) rank.push_back(-score);
  KeepFirst(top_p, rank, log_probs);
}

void Typical(double typical_p, LogProbs& log_probs) {
  if (typical_p == 1) return;
  double entropy = 0;
  for (const double x : log_probs) {
    if (x > -kInf) entropy -= std::exp(x) * x;
  }
  std::vector<double> rank;
  for (const double x : log_probs) rank.push_back(std::abs(-x - entropy));
  KeepFirst(typical_p, rank, log_probs);
}

float RawLogProb(std::span<const float> logits, TokenId token) {
  LogProbs raw = Tempered(logits, 1.0);
  Normalise(raw);
  return static_cast<float>(raw[token]);
}

}  // namespace

std::vector<float> EditedScores(std::span<const float> scores,
                                const DrawOptions& options) {
  constexpr float kOut = -std::numeric_limits<float>::infinity();
  std::vector<float> edited(scores.begin(), scores.end());
  if (options.is_allow_list) std::fill(edited.begin(), edited.end(), kOut);
  for (const TokenEdit& edit : options.edits) {
    edited[edit.token] = edit.banned ? kOut
                                     : EditedScore(scores[edit.token], edit,
                                                   options.repetition_penalty);
  }
  return edited;
}

std::vector<double> DrawLogProbabilities(std::span<const float> edited,
                                         const SamplingParams& params) {
  const auto best = std::max_element(edited.begin(), edited.end());
  LogProbs log_probs(edited.size(), -kInf);
  if (*best == -kInf) return log_probs;
  if (params.greedy()) {
    log_probs[best - edited.begin()] = 0;
    return log_probs;
  }
  log_probs = Tempered(edited, params.temperature);
  MinP(params.min_p, log_probs);
  TopK(params.top_k, edited, log_probs);
  Normalise(log_probs);
  TopP(params.top_p, edited, log_probs);
  Typical(params.typical_p, log_probs);
  return log_probs;
}

std::vector<double> DrawProbabilities(std::span<const float> logits,
                                      const DrawOptions& options) {
  std::vector<double> p =
      DrawLogProbabilities(EditedScores(logits, options), options.params);
  for (double& x : p) x = std::exp(x);
  return p;
}

Draw DrawRow(std::span<const float> logits, const DrawOptions& options,
             RandomPurpose purpose) {
  const auto is_nan = [](float x) { return std::isnan(x); };
  if (std::any_of(logits.begin(), logits.end(), is_nan)) {
    return {.token = kNotANumber};
  }
  const std::vector<double> p = DrawProbabilities(logits, options);
  const RandomKey key = {.seed = options.params.seed,
                         .sample = options.sample,
                         .position = options.position,
                         .purpose = purpose};
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

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/float_limits.h"
#include "kernels/select/merge_candidates.h"
#include "kernels/select/select.h"

namespace espalier::reference {
namespace {

// A token and its ranking score.
struct Ranked {
  TokenId token;
  float score;
};

// Returns the `count` best tokens above -inf, best first.
std::vector<Ranked> Best(std::vector<Ranked> tokens, int count) {
  std::erase_if(tokens, [](const Ranked& t) { return t.score == -kInf; });
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) {
    return a.score != b.score ? a.score > b.score : a.token < b.token;
  });
  if (std::ssize(tokens) > count) tokens.resize(count);
  return tokens;
}

std::vector<float> LogProbsOf(const std::vector<float>& logits) {
  const float max = *std::max_element(logits.begin(), logits.end());
  if (max == -kInf) return logits;
  const auto difference = [&](auto logit) {
    return logit == max ? 0 : logit - max;
  };
  double sum = 0;
  for (const double logit : logits) sum += std::exp(difference(logit));
  const float log_sum = static_cast<float>(std::log(sum));
  std::vector<float> log_probs;
  for (const float logit : logits) {
    log_probs.push_back(difference(logit) - log_sum);
  }
  return log_probs;
}

std::vector<float> NanAsMinusInf(std::span<const float> logits) {
  std::vector<float> clean(logits.begin(), logits.end());
  for (float& logit : clean) {
    if (std::isnan(logit)) logit = -kInf;
  }
  return clean;
}

// Returns `scores` of all tokens, with the edits applied and marked by
// `edited`.
std::vector<Ranked> Edit(const std::vector<float>& scores,
                         const RowOptions& options) {
  std::vector<Ranked> tokens;
  for (TokenId t = 0; t < std::ssize(scores); ++t) {
    tokens.push_back({t, options.is_allow_list ? -kInf : scores[t]});
  }
  for (const TokenEdit& edit : options.edits) {
    float& score = tokens[edit.token].score;
    score = edit.banned ? -kInf
                        : EditedScore(scores[edit.token], edit,
                                      options.repetition_penalty);
  }
  return tokens;
}

// Renormalises edited log-probabilities over all tokens of the row.
class Normalizer {
 public:
  Normalizer(const std::vector<float>& log_probs, const RowOptions& options) {
    const bool has_edits = !options.edits.empty() || options.is_allow_list;
    if (!options.renormalizes || !has_edits) return;
    const std::vector<Ranked> scores = Edit(log_probs, options);
    double max = -kInf;
    for (const Ranked& t : scores) max = std::max<double>(max, t.score);
    if (!std::isfinite(max)) return;
    max_ = max;
    double sum = 0;
    for (const Ranked& t : scores) sum += std::exp(t.score - max);
    log_sum_ = std::log(sum);
  }

  float Of(float score) const {
    return static_cast<float>((score - max_) - log_sum_);
  }

 private:
  double max_ = 0;
  double log_sum_ = 0;
};

// Returns the edited tokens after their edits, and the best `num_candidates` of
// the others by logit.
std::vector<Ranked> Contenders(const std::vector<float>& logits,
                               const std::vector<float>& log_probs,
                               const RowOptions& options) {
  std::vector<Ranked> others = Edit(logits, options);
  std::vector<Ranked> contenders;
  const std::vector<Ranked> edited = Edit(log_probs, options);
  for (const TokenEdit& edit : options.edits) {
    others[edit.token].score = -kInf;
    contenders.push_back(edited[edit.token]);
  }
  for (const Ranked& t : Best(others, options.num_candidates)) {
    contenders.push_back({t.token, log_probs[t.token]});
  }
  const Normalizer normalizer(log_probs, options);
  for (Ranked& t : contenders) t.score = normalizer.Of(t.score);
  return contenders;
}

}  // namespace

std::vector<TokenScore> SelectRow(std::span<const float> logits,
                                  const RowOptions& options) {
  if (logits.empty()) return {};
  const std::vector<float> clean = NanAsMinusInf(logits);
  const std::vector<float> log_probs = LogProbsOf(clean);
  const bool by_log_prob = options.domain == ScoreDomain::kLogProbs;
  const std::vector<Ranked> tokens = by_log_prob
                                         ? Contenders(clean, log_probs, options)
                                         : Edit(clean, options);
  std::vector<TokenScore> best;
  for (const Ranked& t : Best(tokens, options.num_candidates)) {
    best.push_back({t.token, by_log_prob ? t.score : log_probs[t.token]});
  }
  return best;
}

std::vector<Candidate> MergeCandidates(
    std::span<const std::vector<TokenScore>> rows,
    std::span<const float> cum_log_probs, int num_candidates) {
  std::vector<Candidate> candidates;
  for (int beam = 0; beam < std::ssize(rows); ++beam) {
    for (const TokenScore& t : rows[beam]) {
      const float cum = cum_log_probs[beam] + t.log_prob;
      if (cum > -kInf) candidates.push_back({beam, t.token, cum});
    }
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) {
              if (a.cum_log_prob != b.cum_log_prob) {
                return a.cum_log_prob > b.cum_log_prob;
              }
              return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
            });
  if (std::ssize(candidates) > num_candidates) {
    candidates.resize(num_candidates);
  }
  return candidates;
}

}  // namespace espalier::reference

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "base/check.h"
#include "kernels/float_limits.h"
#include "kernels/gumbel_topk/gumbel_topk.h"
#include "kernels/gumbel_topk/noise_block.h"
#include "kernels/logits/row_scan.h"
#include "kernels/sample/kept_tokens.h"
#include "kernels/sample/processed_logits.h"
#include "kernels/scratch.h"

namespace espalier {
namespace {

// Keeps the m highest noisy scores of a stream of tokens.
class BestWithNoise {
 public:
  // REQUIRES: num_best >= 1.
  BestWithNoise(size_t num_best, double above, const RandomKey& key)
      : num_best_(num_best), key_(key), threshold_(above) {
    tokens_.reserve(capacity());
  }

  // Returns the score that tokens added later must exceed.
  double threshold() const { return threshold_; }

  // REQUIRES: tokens ascending; value not NaN, not +inf.
  void Add(TokenId token, float value) {
    if (value == -kInf) return;
    const double score = value + Gumbel(key_, token);
    if (!(score > threshold_)) return;
    tokens_.push_back({score, {token, value}});
    if (tokens_.size() == capacity()) Prune();
  }

  // Returns the tokens, best first.
  std::vector<TokenScore> Take() {
    Prune();
    std::sort(tokens_.begin(), tokens_.end(), IsBetter);
    std::vector<TokenScore> best;
    best.reserve(tokens_.size());
    for (const NoisyToken& t : tokens_) best.push_back(t.token);
    return best;
  }

 private:
  struct NoisyToken {
    double score;
    TokenScore token;
  };

  static bool IsBetter(const NoisyToken& a, const NoisyToken& b) {
    return a.score != b.score ? a.score > b.score
                              : a.token.token < b.token.token;
  }

  size_t capacity() const { return 2 * num_best_ + 64; }

  void Prune() {
    if (tokens_.size() <= num_best_) return;
    const auto last = tokens_.begin() + num_best_ - 1;
    std::nth_element(tokens_.begin(), last, tokens_.end(), IsBetter);
    tokens_.resize(num_best_);
    threshold_ = tokens_.back().score;
  }

  const size_t num_best_;
  const RandomKey key_;
  double threshold_;
  std::vector<NoisyToken> tokens_;
};

// The noise words of ascending chunks of tokens, computed for a run at a time.
class NoiseWords {
 public:
  explicit NoiseWords(const RandomKey& key) : key_(key) {}

  // Returns the words of a chunk that starts at a multiple of kChunkSize.
  const uint32_t* Of(TokenId first) {
    const TokenId begin = first / kRun * kRun;
    if (begin != begin_) {
      begin_ = begin;
      WriteNoiseWords(begin, kRun, key_, words_);
    }
    return words_ + (first - begin);
  }

 private:
  static constexpr int kRun = 16 * kChunkSize;

  const RandomKey key_;
  TokenId begin_ = -1;
  uint32_t words_[kRun];
};

ProcessedLogits::Options OptionsOf(const DrawOptions& draw, int vocab_size) {
  return {
      .repetition_penalty = draw.repetition_penalty,
      .edits = draw.edits,
      .is_allow_list = draw.is_allow_list,
      .keep_moments = KeptTokens::AsksMoments(draw.params, vocab_size),
  };
}

bool Normalizes(const GumbelTopKOptions& options) {
  return options.domain == ScoreDomain::kLogits || options.renormalizes;
}

// The function from scores that the filters keep to values.
class ValueRule {
 public:
  ValueRule(const ProcessedLogits& row, const KeptTokens& kept,
            const GumbelTopKOptions& options)
      : temperature_(options.draw.params.temperature),
        normalizes_(Normalizes(options)),
        max_(row.max()),
        log_sum_(normalizes_ ? kept.LogSum() : 0) {}

  float Of(float score) const {
    if (!normalizes_) return score / temperature_;
    const double z = score == max_ ? 0 : (score - max_) / temperature_;
    return static_cast<float>(z - log_sum_);
  }

 private:
  const float temperature_;
  const bool normalizes_;
  const double max_;
  const double log_sum_;
};

// Returns the best tokens with their values, from a row with its edits applied.
std::vector<TokenScore> GumbelTopKOfProcessed(
    ProcessedLogits& row, const GumbelTopKOptions& options) {
  if (row.max() == -kInf) return {};
  const DrawOptions& draw = options.draw;
  const SamplingParams& params = draw.params;
  if (params.greedy()) {
    return {{row.BestToken(), Normalizes(options) ? 0.0f : row.max()}};
  }
  const KeptTokens kept(row, params);
  const ValueRule rule(row, kept, options);
  const RandomKey key = GumbelKey(params.seed, draw.sample, draw.position);
  BestWithNoise best(std::min(options.num_candidates, row.vocab_size()),
                     options.above, key);
  NoiseThreshold threshold = {.max = row.max(),
                              .temperature = params.temperature,
                              .value_of_max = rule.Of(row.max())};
  NoiseWords words(key);
  kept.ForEachOf(
      [&](TokenId first, const float* scores) {
        threshold.threshold = best.threshold();
        return MayExceed(scores, words.Of(first), threshold);
      },
      [&](TokenId token, float score) { best.Add(token, rule.Of(score)); });
  return best.Take();
}

// Calls use(row) with the row after the edits of `options`, in its domain.
//   row  before edits in kLogProbs, else after them
// REQUIRES: a token of it is above -inf.
template <typename Use>
auto UseEdited(ProcessedLogits& row, const GumbelTopKOptions& options,
               const Use& use) {
  if (options.domain == ScoreDomain::kLogits) return use(row);
  const size_t vocab_size = row.vocab_size();
  float* const log_probs = Scratch(ScratchUse::kLogProbs, vocab_size);
  row.WriteLogProbs(log_probs);
  ProcessedLogits edited({log_probs, vocab_size},
                         OptionsOf(options.draw, row.vocab_size()));
  return use(edited);
}

ProcessedLogits::Options OptionsOfLogits(const GumbelTopKOptions& options,
                                         int vocab_size) {
  if (options.domain == ScoreDomain::kLogProbs) return {};
  return OptionsOf(options.draw, vocab_size);
}

}  // namespace

void AddNoise(std::span<const Candidate> candidates, uint64_t seed,
              uint32_t rank, uint32_t position, std::vector<double>* sums) {
  const RandomKey key = GumbelKey(seed, rank, position);
  sums->clear();
  for (const Candidate& candidate : candidates) {
    sums->push_back(candidate.cum_log_prob + Gumbel(key, candidate.token));
  }
}

// Computes log(1 - exp(x)) without cancellation (Maechler 2012).
double ShiftToMaximum(double noisy_score, double maximum, double parent) {
  if (noisy_score >= maximum) return parent;
  const double x = noisy_score - maximum;
  const double log1mexp = x > -std::numbers::ln2 ? std::log(-std::expm1(x))
                                                 : std::log1p(-std::exp(x));
  const double v = parent - noisy_score + log1mexp;
  return parent - std::max(0.0, v) - std::log1p(std::exp(-std::abs(v)));
}

std::vector<TokenScore> GumbelTopK(std::span<const float> logits,
                                   const GumbelTopKOptions& options) {
  CHECK(!logits.empty());
  CHECK_GE(options.num_candidates, 1);
  const int vocab_size = static_cast<int>(logits.size());
  ProcessedLogits row(logits, OptionsOfLogits(options, vocab_size));
  if (row.has_nan()) return {{kNotANumber, 0.0f}};
  if (row.max() == -kInf) return {};
  return UseEdited(row, options, [&](ProcessedLogits& edited) {
    return GumbelTopKOfProcessed(edited, options);
  });
}

std::vector<float> TokenValues(std::span<const float> logits,
                               GumbelTopKOptions options) {
  CHECK(!logits.empty());
  SamplingParams& params = options.draw.params;
  if (params.greedy()) params = {};
  std::vector<float> numbers(logits.begin(), logits.end());
  std::ranges::transform(numbers, numbers.begin(), NanAsMinusInf);
  const int vocab_size = static_cast<int>(logits.size());
  ProcessedLogits row(numbers, OptionsOfLogits(options, vocab_size));
  std::vector<float> values(logits.size(), -kInf);
  if (row.max() == -kInf) return values;
  UseEdited(row, options, [&](ProcessedLogits& edited) {
    if (edited.max() == -kInf) return;
    const KeptTokens kept(edited, params);
    const ValueRule rule(edited, kept, options);
    kept.ForEach(
        [&](TokenId token, float score) { values[token] = rule.Of(score); });
  });
  return values;
}

}  // namespace espalier

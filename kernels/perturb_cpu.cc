#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "kernels/edited_row.h"
#include "kernels/kept_tokens.h"
#include "kernels/perturb.h"
#include "kernels/scratch.h"

namespace espalier {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Keeps the m highest perturbed scores of a stream of tokens. Most are turned
// away by a bound on their noise that costs no logarithm.
class BestPerturbed {
 public:
  // REQUIRES: num_best >= 1.
  BestPerturbed(size_t num_best, const RandomKey& key)
      : num_best_(num_best), key_(key) {
    tokens_.reserve(capacity());
  }

  // REQUIRES: tokens ascending; value not NaN, not +inf.
  void Add(TokenId token, float value) {
    if (value == -kInf) return;
    // Noise above g is a uniform number with -log(uniform) < exp(-g), and
    // -log(uniform) >= 1 - uniform; the rest is for the rounding of exp.
    const double most = std::exp(value - threshold_) * (1 + 1e-12);
    if (most < 0x1p-54) return;
    const double uniform = UniformAt(token);
    if (1 - uniform > most) return;
    const double score = value + GumbelOf(uniform);
    if (!(score > threshold_)) return;
    tokens_.push_back({score, {token, value}});
    if (tokens_.size() == capacity()) Prune();
  }

  // Best first.
  std::vector<TokenScore> Take() {
    Prune();
    std::sort(tokens_.begin(), tokens_.end(), IsBetter);
    std::vector<TokenScore> best;
    best.reserve(tokens_.size());
    for (const Perturbed& t : tokens_) best.push_back(t.token);
    return best;
  }

 private:
  struct Perturbed {
    double score;
    TokenScore token;
  };

  static bool IsBetter(const Perturbed& a, const Perturbed& b) {
    return a.score != b.score ? a.score > b.score
                              : a.token.token < b.token.token;
  }

  size_t capacity() const { return 2 * num_best_ + 64; }

  double UniformAt(TokenId token) {
    if (token / 2 != pair_) {
      pair_ = token / 2;
      random_ = WordsAt(key_, static_cast<uint32_t>(pair_));
    }
    return GumbelUniform(random_, token);
  }

  void Prune() {
    if (tokens_.size() <= num_best_) return;
    const auto last = tokens_.begin() + num_best_ - 1;
    std::nth_element(tokens_.begin(), last, tokens_.end(), IsBetter);
    tokens_.resize(num_best_);
    threshold_ = tokens_.back().score;
  }

  const size_t num_best_;
  const RandomKey key_;
  double threshold_ = -std::numeric_limits<double>::infinity();
  TokenId pair_ = -1;  // of tokens, of which random_ is
  RandomWords random_;
  std::vector<Perturbed> tokens_;
};

EditedRow::Options EditsOf(const DrawOptions& draw) {
  return {.repetition_penalty = draw.repetition_penalty,
          .edits = draw.edits,
          .only_edited = draw.only_edited};
}

// What is left of a row after its edits, with its values.
std::vector<TokenScore> PerturbEdited(EditedRow& row,
                                      const PerturbOptions& options) {
  if (row.max() == -kInf) return {};
  const DrawOptions& draw = options.draw;
  const SamplingParams& params = draw.params;
  const bool by_log_prob = options.domain == ScoreDomain::kLogProbs;
  if (params.greedy()) {
    return {{row.BestToken(), by_log_prob ? row.max() : 0.0f}};
  }
  const KeptTokens kept(row, params);
  const double max = row.max(), log_sum = kept.LogSum();
  BestPerturbed best(std::min(options.num_candidates, row.vocab_size()),
                     PerturbKey(params.seed, draw.sample, draw.position));
  kept.ForEach([&](TokenId token, float score) {
    if (by_log_prob) {
      best.Add(token, score / params.temperature);
    } else {
      const double z = score == max ? 0 : (score - max) / params.temperature;
      best.Add(token, static_cast<float>(z - log_sum));
    }
  });
  return best.Take();
}

}  // namespace

std::vector<TokenScore> PerturbRow(std::span<const float> logits,
                                   const PerturbOptions& options) {
  CHECK(!logits.empty());
  CHECK_GE(options.num_candidates, 1);
  const bool by_log_prob = options.domain == ScoreDomain::kLogProbs;
  EditedRow row(logits,
                by_log_prob ? EditedRow::Options() : EditsOf(options.draw));
  if (row.has_nan()) return {{kNotANumber, 0.0f}};
  if (!by_log_prob) return PerturbEdited(row, options);
  if (row.max() == -kInf) return {};
  float* const log_probs = Scratch(ScratchUse::kLogProbs, logits.size());
  row.WriteLogProbs(log_probs);
  EditedRow edited({log_probs, logits.size()}, EditsOf(options.draw));
  return PerturbEdited(edited, options);
}

}  // namespace espalier

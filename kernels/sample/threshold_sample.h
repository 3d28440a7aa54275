// ThresholdSample: a bracket around the threshold of FindThreshold
// (top_p_threshold.h), estimated from a few of the tokens.
//
// Thread safety: constant after construction.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>

#include "kernels/float_limits.h"
#include "kernels/logits/score_key.h"
#include "kernels/sample/top_p_threshold.h"

namespace espalier {

// Keys in [low, high].
struct Bracket {
  float low = kLowest;
  float high = kInf;
};

// A row in the order of a rule.
struct ThresholdSearch {
  std::span<const WeightedBlock> blocks;
  const KeyRule& rule;
  const WeightRule& weight_rule;
  bool has_weights() const { return blocks.front().weights != nullptr; }
};

// A sample of tokens, which estimates the cut.
class ThresholdSample {
 public:
  explicit ThresholdSample(const ThresholdSearch& search) {
    int64_t num_tokens = 0;
    for (const WeightedBlock& block : search.blocks) num_tokens += block.size;
    const int64_t step = std::max<int64_t>(1, num_tokens / kSampleSize);
    int64_t next = step / 2;  // from the start of the block
    for (const WeightedBlock& block : search.blocks) {
      for (; next < block.size; next += step) Add(search, block, next);
      next -= block.size;
    }
    Finish(search, static_cast<float>(step));
  }

  // Both REQUIRE: bound > 0; `total` as for FindThreshold.
  Bracket Guess(double bound, double total) const {
    if (num_keys_ == 0) return {};
    return {.low = Low(bound, total), .high = High(bound, total)};
  }

  // As Guess, but open above or at the end that leaves fewer tokens.
  Bracket GuessOpen(double bound, double total, bool above) const {
    if (num_keys_ == 0) return {};
    const auto guess = [&](bool from_low) {
      return from_low ? Bracket{.low = Low(bound, total)}
                      : Bracket{.high = High(bound, total)};
    };
    if (above) return guess(true);
    // A guess takes some hundredths of a pass over a row; usually the likelier
    // of the two suffices.
    const bool few_stay = UpperHalfHas(bound / total);
    const Bracket likely = guess(few_stay);
    if (2 * NumIn(likely) <= num_keys_) return likely;
    const Bracket other = guess(!few_stay);
    return NumIn(other) < NumIn(likely) ? other : likely;
  }

  // Without keys, +inf and -inf.
  float lowest() const { return lowest_; }
  float highest() const { return highest_; }

 private:
  // A larger sample gives a narrower bracket, but takes longer.
  static constexpr int kSampleSize = 192;
  // Standard deviations to each side: one bracket in a hundred fails.
  static constexpr double kMargin = 2.5;
  static constexpr int kCapacity = 2 * kSampleSize + kChunkSize;

  // An estimate of a sum from evenly picked terms.
  struct Estimate {
    double sum = 0;
    double variance = 0;
    double margin() const { return kMargin * std::sqrt(variance); }
    double least() const { return sum - margin(); }
    double most() const { return sum + margin(); }
  };

  void Add(const ThresholdSearch& search, const WeightedBlock& block,
           int64_t i) {
    const float key = search.rule.KeyOf(block.values[i]);
    if (key < kLowest) return;
    lowest_ = std::min(lowest_, key);
    highest_ = std::max(highest_, key);
    keys_[num_keys_] = key;
    weights_[num_keys_] =
        search.has_weights() ? block.weights[i] : block.values[i];
    ++num_keys_;
  }

  // Each token represents `step` tokens.
  void Finish(const ThresholdSearch& search, float step) {
    std::fill_n(keys_ + num_keys_, kChunkSize, -kInf);
    std::fill_n(weights_ + num_keys_, kChunkSize, 0.0f);
    size_ = (num_keys_ + kChunkSize - 1) / kChunkSize * kChunkSize;
    if (!search.has_weights()) {
      WeighBlock(weights_, size_, search.weight_rule, weights_);
    }
    for (int i = 0; i < size_; ++i) weights_[i] *= step;
  }

  // True if the tokens above the mean key have this share of the mass.
  bool UpperHalfHas(double share) const {
    const float sum = std::accumulate(keys_, keys_ + num_keys_, 0.0f);
    const float mean = std::max(sum / static_cast<float>(num_keys_), kLowest);
    const SplitSums sums = SumsOfSplit(keys_, weights_, size_, mean);
    return sums.from >= share * (sums.from + sums.below);
  }

  int NumIn(const Bracket& bracket) const {
    int count = 0;
    for (int i = 0; i < num_keys_; ++i) {
      count += keys_[i] >= bracket.low && keys_[i] <= bracket.high;
    }
    return count;
  }

  // True unless the sample misses all tokens that have most of the mass.
  bool HasTop(double total) const {
    const SplitSums all = SumsOfSplit(keys_, weights_, size_, kLowest);
    const Estimate estimate = {all.from, all.from_squares};
    return estimate.least() <= total && total <= estimate.most();
  }

  float Low(double bound, double total) const {
    const bool has_top = HasTop(total);
    return Split([&](const Estimate& from, const Estimate& below) {
             const double least = total - below.most();
             return least >= bound || (has_top && from.least() >= bound);
           })
        .low;
  }

  float High(double bound, double total) const {
    const bool has_top = HasTop(total);
    return Split([&](const Estimate& from, const Estimate& below) {
             const double most = total - below.least();
             return most >= bound && !(has_top && from.most() < bound);
           })
        .high;
  }

  // Returns two close keys. The predicate holds for the masses from `low` on
  // and below it, and fails for those at `high`.
  template <typename Predicate>
  Bracket Split(const Predicate& predicate) const {
    constexpr int kSteps = 14;  // 31 would be exact
    const auto holds = [&](float key) {
      const SplitSums sums = SumsOfSplit(keys_, weights_, size_, key);
      return predicate({sums.from, sums.from_squares},
                       {sums.below, sums.below_squares});
    };
    if (!holds(lowest_)) return {.high = lowest_};
    if (holds(highest_)) return {.low = highest_};
    uint32_t in = OrdinalOf(lowest_), out = OrdinalOf(highest_);
    for (int i = 0; i < kSteps && out - in > 1; ++i) {
      const uint32_t middle = in + (out - in) / 2;
      (holds(ScoreAt(middle)) ? in : out) = middle;
    }
    return {ScoreAt(in), ScoreAt(out)};
  }

  float lowest_ = kInf, highest_ = -kInf;
  int num_keys_ = 0;
  int size_ = 0;  // whole chunks
  float keys_[kCapacity];
  float weights_[kCapacity];
};

}  // namespace espalier

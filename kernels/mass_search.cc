#include "kernels/mass_search.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/score_key.h"
#include "kernels/scratch.h"

namespace espalier {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

// Few enough to ask again and again for the mass above a key.
constexpr size_t kFewTokens = 256;
// A sample's mass above a key is off by 0.5 / sqrt(192) = 4 % or less two times
// in three, so that a bracket of 10 % to each side fails one time in a hundred.
constexpr int kSampleSize = 192;
constexpr double kMargin = 0.1;

// Floats in ascending order have ascending ordinals.
uint32_t OrdinalOf(float key) {
  return static_cast<uint32_t>(MakeScoreKey(key, 0) >> 32);
}
float KeyAt(uint32_t ordinal) { return ScoreOf(ScoreKey{ordinal} << 32); }

// Keys in [low, high].
struct Bracket {
  float low = kLowest;
  float high = kInf;
};

// Some keys and their weights, in memory of the thread's.
class KeyBuffer {
 public:
  // Of up to `capacity` tokens.
  KeyBuffer(ScratchUse use, size_t capacity)
      : keys_(Scratch(use, 2 * (capacity + 2 * kChunkSize))),
        weights_(keys_ + capacity + 2 * kChunkSize) {}

  // Fills it with what is in the bracket, and returns the mass above.
  double Take(std::span<const WeightedBlock> blocks, const KeyRule& rule,
              const Bracket& bracket) {
    double above = 0;
    size_ = 0;
    for (const WeightedBlock& block : blocks) {
      const BlockParts parts = PartitionBlock(
          block.values, block.weights, block.size, rule, block.scale,
          bracket.low, bracket.high, keys_ + size_, weights_ + size_);
      above += parts.mass_above;
      size_ += parts.num_between;
    }
    Pad();
    return above;
  }

  // Fills it with tokens that are evenly spread.
  void TakeSample(std::span<const WeightedBlock> blocks, const KeyRule& rule,
                  int64_t num_tokens) {
    const int64_t step = std::max<int64_t>(1, num_tokens / kSampleSize);
    int64_t next = step / 2;  // from the start of the block
    size_ = 0;
    for (const WeightedBlock& block : blocks) {
      for (; next < block.size; next += step) {
        keys_[size_] = rule.KeyOf(block.values[next]);
        weights_[size_++] = block.weights[next] * block.scale;
      }
      next -= block.size;
    }
    Pad();
  }

  size_t size() const { return size_; }
  WeightedBlock block() const {
    return {keys_, weights_, static_cast<int>(padded_size_)};
  }
  double MassFrom(float cut) const {
    if (size_ == 0) return 0;
    return MassOfBlock(keys_, weights_, static_cast<int>(padded_size_), {},
                       cut);
  }

  // A key above which there is about this share of the mass: found fast rather
  // than exactly.
  float KeyNear(double share) const {
    const double total = MassFrom(kLowest);
    float low = *std::min_element(keys_, keys_ + size_);
    float high = *std::max_element(keys_, keys_ + size_);
    if (low < kLowest) return kLowest;
    for (int i = 0; i < 12 && low < high; ++i) {
      const float middle = 0.5f * low + 0.5f * high;
      const double part = MassFrom(middle) / total;
      if (std::abs(part - share) < 0.2 * kMargin) return middle;
      (part > share ? low : high) = middle;
    }
    return low;
  }

  // The lowest key in the bracket above which there is less than `bound`.
  float Cut(double bound, const Bracket& bracket) const {
    uint32_t out = OrdinalOf(bracket.low) - 1, in = OrdinalOf(bracket.high);
    while (in - out > 1) {
      const uint32_t middle = out + (in - out) / 2;
      (MassFrom(KeyAt(middle + 1)) < bound ? in : out) = middle;
    }
    return KeyAt(in);
  }

 private:
  void Pad() {
    padded_size_ = (size_ + kChunkSize - 1) / kChunkSize * kChunkSize;
    std::fill(keys_ + size_, keys_ + padded_size_, -kInf);
    std::fill(weights_ + size_, weights_ + padded_size_, 0.0f);
  }

  float* keys_;
  float* weights_;
  size_t size_ = 0;
  size_t padded_size_ = 0;
};

// Where the cut probably is, by a sample.
//   share  of the mass, that is above the cut
Bracket Guess(const KeyBuffer& sample, double share) {
  Bracket bracket;
  if (share > kMargin) bracket.high = sample.KeyNear(share - kMargin);
  if (share + kMargin < 1) bracket.low = sample.KeyNear(share + kMargin);
  return bracket.low < bracket.high ? bracket : Bracket();
}

// Fills `buffer` with what is in the bracket, or in another one that has the
// cut, which `bracket` becomes; returns the mass above.
double Narrow(std::span<const WeightedBlock> blocks, const KeyRule& rule,
              double bound, Bracket& bracket, KeyBuffer& buffer) {
  double above = buffer.Take(blocks, rule, bracket);
  if (above >= bound) {
    bracket = {.low = bracket.high};
    above = buffer.Take(blocks, rule, bracket);
  } else if (bracket.low != kLowest &&
             above + buffer.MassFrom(kLowest) < bound) {
    bracket = {.high = bracket.low};
    above = buffer.Take(blocks, rule, bracket);
  }
  // Sums of other parts of a block round otherwise.
  if (above < bound && buffer.size() > 0) return above;
  bracket = {};
  return buffer.Take(blocks, rule, bracket);
}

}  // namespace

float FindCut(std::span<const WeightedBlock> blocks, const KeyRule& rule,
              double bound, double total) {
  int64_t num_tokens = 0;
  for (const WeightedBlock& block : blocks) num_tokens += block.size;
  KeyBuffer left(ScratchUse::kKeys0, num_tokens);
  KeyBuffer inner(ScratchUse::kKeys1, num_tokens);
  KeyBuffer sample(ScratchUse::kSample, 2 * kSampleSize);
  Bracket bracket;
  if (num_tokens > kFewTokens) {
    sample.TakeSample(blocks, rule, num_tokens);
    bracket = Guess(sample, bound / total);
  }
  double above = Narrow(blocks, rule, bound, bracket, left);
  size_t before = num_tokens;
  while (left.size() > kFewTokens && 2 * left.size() < before) {
    before = left.size();
    const WeightedBlock block = left.block();
    sample.TakeSample({&block, 1}, {}, block.size);
    Bracket guess = Guess(sample, (bound - above) / left.MassFrom(kLowest));
    guess = {std::max(guess.low, bracket.low),
             std::min(guess.high, bracket.high)};
    above += Narrow({&block, 1}, {}, bound - above, guess, inner);
    bracket = {std::max(guess.low, bracket.low),
               std::min(guess.high, bracket.high)};
    std::swap(left, inner);
  }
  return left.Cut(bound - above, bracket);
}

}  // namespace espalier

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
  // Of up to `capacity` tokens of whole chunks.
  KeyBuffer(ScratchUse use, size_t capacity)
      : keys_(Scratch(use, 2 * (capacity + 2 * kChunkSize))),
        weights_(keys_ + capacity + 2 * kChunkSize) {}

  // Fills it with what is in the bracket, and returns the mass above. Every
  // block's part is padded to whole chunks.
  double Take(std::span<const WeightedBlock> blocks, const KeyRule& rule,
              const Bracket& bracket) {
    double above = 0;
    size_ = num_keys_ = 0;
    parts_.clear();
    for (const WeightedBlock& block : blocks) {
      const BlockParts parts = PartitionBlock(
          block.values, block.weights, block.size, rule, block.scale,
          bracket.low, bracket.high, keys_ + size_, weights_ + size_);
      parts_.push_back({parts.mass_above, size_});
      above += parts.mass_above;
      size_ += parts.num_between;
      num_keys_ += parts.num_between;
      Pad();
    }
    return above;
  }

  // Of each block that was taken from, the mass of the bracket from `cut` on
  // and of what is above the bracket.
  std::vector<double> MassesFrom(float cut) const {
    std::vector<double> masses;
    masses.reserve(parts_.size());
    for (size_t b = 0; b < parts_.size(); ++b) {
      const auto [above, begin] = parts_[b];
      const size_t end = b + 1 < parts_.size() ? parts_[b + 1].begin : size_;
      masses.push_back(above + MassOfPart(begin, end, cut));
    }
    return masses;
  }

  // Fills it with tokens that are evenly spread.
  void TakeSample(std::span<const WeightedBlock> blocks, const KeyRule& rule,
                  int64_t num_tokens) {
    const int64_t step = std::max<int64_t>(1, num_tokens / kSampleSize);
    int64_t next = step / 2;  // from the start of the block
    size_ = 0;
    lowest_ = kInf;
    highest_ = -kInf;
    parts_.clear();
    for (const WeightedBlock& block : blocks) {
      for (; next < block.size; next += step) {
        const float key = rule.KeyOf(block.values[next]);
        keys_[size_] = key;
        weights_[size_] = block.weights[next] * block.scale;
        if (key < kLowest) continue;
        lowest_ = std::min(lowest_, key);
        highest_ = std::max(highest_, key);
        ++size_;
      }
      next -= block.size;
    }
    num_keys_ = size_;
    Pad();
  }

  size_t num_keys() const { return num_keys_; }
  size_t num_places() const { return size_; }
  WeightedBlock block() const {
    return {keys_, weights_, static_cast<int>(size_)};
  }
  double MassFrom(float cut) const { return MassOfPart(0, size_, cut); }

  // A key above which there is about this share of the mass: found fast rather
  // than exactly. REQUIRES: num_keys() > 0.
  float KeyNear(double share) const {
    const double total = MassFrom(kLowest);
    float low = lowest_, high = highest_;
    for (int i = 0; i < 12 && low < high; ++i) {
      const float middle = 0.5f * low + 0.5f * high;
      const double part = MassFrom(middle) / total;
      if (std::abs(part - share) < 0.2 * kMargin) return middle;
      (part > share ? low : high) = middle;
    }
    return low;
  }

  // The lowest key in the bracket above which there is less than `bound`.
  float CutAt(double bound, const Bracket& bracket) const {
    uint32_t out = OrdinalOf(bracket.low) - 1, in = OrdinalOf(bracket.high);
    while (in - out > 1) {
      const uint32_t middle = out + (in - out) / 2;
      (MassFrom(KeyAt(middle + 1)) < bound ? in : out) = middle;
    }
    return KeyAt(in);
  }

 private:
  struct Part {
    double above;
    size_t begin;
  };

  double MassOfPart(size_t begin, size_t end, float cut) const {
    if (begin == end) return 0;
    return MassOfBlock(keys_ + begin, weights_ + begin,
                       static_cast<int>(end - begin), {}, cut);
  }

  void Pad() {
    // More than it takes, in a loop of a length that the compiler knows.
    std::fill_n(keys_ + size_, kChunkSize, -kInf);
    std::fill_n(weights_ + size_, kChunkSize, 0.0f);
    size_ = (size_ + kChunkSize - 1) / kChunkSize * kChunkSize;
  }

  float* keys_;
  float* weights_;
  size_t size_ = 0;                        // whole chunks
  size_t num_keys_ = 0;                    // without what pads them
  float lowest_ = kInf, highest_ = -kInf;  // keys of a sample
  std::vector<Part> parts_;
};

// Where the cut probably is, by a sample.
//   share  of the mass, that is above the cut
Bracket Guess(const KeyBuffer& sample, double share) {
  Bracket bracket;
  if (sample.num_keys() == 0) return bracket;
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
  if (above < bound && buffer.num_keys() > 0) return above;
  bracket = {};
  return buffer.Take(blocks, rule, bracket);
}

// The cut in `outer`, all of which is in the bracket.
float CutWithin(const KeyBuffer& outer, double bound, Bracket bracket,
                KeyBuffer& sample) {
  const KeyBuffer* left = &outer;
  KeyBuffer buffers[2] = {{ScratchUse::kInner0, outer.num_places()},
                          {ScratchUse::kInner1, outer.num_places()}};
  size_t before = 2 * outer.num_keys() + 1;
  for (int i = 0; left->num_keys() > kFewTokens; i = 1 - i) {
    if (2 * left->num_keys() >= before) break;
    before = left->num_keys();
    const WeightedBlock block = left->block();
    sample.TakeSample({&block, 1}, {}, block.size);
    Bracket guess = Guess(sample, bound / left->MassFrom(kLowest));
    bound -= Narrow({&block, 1}, {}, bound, guess, buffers[i]);
    bracket = {std::max(guess.low, bracket.low),
               std::min(guess.high, bracket.high)};
    left = &buffers[i];
  }
  return left->CutAt(bound, bracket);
}

}  // namespace

Cut FindCut(std::span<const WeightedBlock> blocks, const KeyRule& rule,
            double bound, double total) {
  int64_t num_tokens = 0;
  for (const WeightedBlock& block : blocks) num_tokens += block.size;
  KeyBuffer sample(ScratchUse::kSample, 2 * kSampleSize);
  KeyBuffer outer(ScratchUse::kOuter, num_tokens);
  Bracket bracket;
  if (num_tokens > kFewTokens) {
    sample.TakeSample(blocks, rule, num_tokens);
    bracket = Guess(sample, bound / total);
  }
  bound -= Narrow(blocks, rule, bound, bracket, outer);
  const float key = CutWithin(outer, bound, bracket, sample);
  return {key, outer.MassesFrom(key)};
}

}  // namespace espalier

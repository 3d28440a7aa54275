#include "kernels/mass_search.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "hwy/contrib/sort/vqsort.h"
#include "kernels/score_key.h"

namespace espalier {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

// Few enough to sort.
constexpr size_t kSortSize = 192;
// Tokens of a sample, and how many of them on each side of the guess make the
// bracket. The mass above the guess is off by 0.5 / sqrt(128) = 4 % or less one
// time in three, so 12 of 128 fail one time in thirty and leave a fifth.
constexpr int kSampleSize = 128;
constexpr int kBracket = 12;

// A key and its weight in one number, in the order of keys.
using WeightedKey = uint64_t;

WeightedKey MakeWeightedKey(float key, float weight) {
  const ScoreKey ordered = MakeScoreKey(key, 0) >> 32 << 32;
  return ordered | std::bit_cast<uint32_t>(weight);
}

float WeightOf(WeightedKey key) {
  return std::bit_cast<float>(static_cast<uint32_t>(key));
}

void SortFalling(std::vector<WeightedKey>& keys) {
  hwy::Sorter()(keys.data(), keys.size(), hwy::SortDescending());
}

struct Bracket {
  float low = kLowest;
  float high = kInf;
};

// Some of the tokens, evenly spread, best first.
std::vector<WeightedKey> Sample(std::span<const WeightedBlock> blocks,
                                const KeyRule& rule, int64_t num_tokens) {
  const int64_t step = std::max<int64_t>(1, num_tokens / kSampleSize);
  std::vector<WeightedKey> sample;
  sample.reserve(2 * kSampleSize);
  int64_t next = step / 2;  // from the start of the block
  for (const WeightedBlock& block : blocks) {
    for (; next < block.size; next += step) {
      const float key = rule.KeyOf(block.values[next]);
      if (key == -kInf) continue;
      sample.push_back(MakeWeightedKey(key, block.weights[next] * block.scale));
    }
    next -= block.size;
  }
  SortFalling(sample);
  return sample;
}

// Where the cut probably is, if the cut is where a sample's share of mass is
// `share`.
Bracket Guess(const std::vector<WeightedKey>& sample, double share) {
  double total = 0;
  for (const WeightedKey key : sample) total += WeightOf(key);
  double sum = 0;
  int at = 0;
  const int size = static_cast<int>(sample.size());
  while (at < size && sum < share * total) sum += WeightOf(sample[at++]);
  Bracket bracket;
  if (at > kBracket) bracket.high = ScoreOf(sample[at - kBracket - 1]);
  if (at + kBracket < size) bracket.low = ScoreOf(sample[at + kBracket]);
  return bracket;
}

// Keys and weights, whole chunks of them.
class KeyBuffer {
 public:
  explicit KeyBuffer(size_t capacity)
      : keys_(std::make_unique_for_overwrite<float[]>(capacity)),
        weights_(std::make_unique_for_overwrite<float[]>(capacity)) {}

  // Fills it with what is in the bracket, and returns the mass above.
  double Take(std::span<const WeightedBlock> blocks, const KeyRule& rule,
              const Bracket& bracket) {
    double above = 0;
    size_ = 0;
    for (const WeightedBlock& block : blocks) {
      const BlockParts parts = PartitionBlock(
          block.values, block.weights, block.size, rule, block.scale,
          bracket.low, bracket.high, &keys_[size_], &weights_[size_]);
      above += parts.mass_above;
      size_ += parts.num_between;
    }
    padded_size_ = (size_ + kChunkSize - 1) / kChunkSize * kChunkSize;
    std::fill(&keys_[size_], &keys_[padded_size_], -kInf);
    std::fill(&weights_[size_], &weights_[padded_size_], 0.0f);
    return above;
  }

  size_t size() const { return size_; }
  WeightedBlock block() const {
    return {keys_.get(), weights_.get(), static_cast<int>(padded_size_)};
  }
  double Mass() const {
    if (size_ == 0) return 0;
    return MassOfBlock(keys_.get(), weights_.get(),
                       static_cast<int>(padded_size_), {}, kLowest);
  }
  std::vector<WeightedKey> Sorted() const {
    std::vector<WeightedKey> sorted(size_);
    for (size_t i = 0; i < size_; ++i) {
      sorted[i] = MakeWeightedKey(keys_[i], weights_[i]);
    }
    SortFalling(sorted);
    return sorted;
  }

 private:
  std::unique_ptr<float[]> keys_;
  std::unique_ptr<float[]> weights_;
  size_t size_ = 0;
  size_t padded_size_ = 0;
};

// The cut among `sorted`, above which there is a mass of `above`.
float CutOf(const std::vector<WeightedKey>& sorted, double above,
            double bound) {
  float cut = ScoreOf(sorted.front());
  for (const WeightedKey key : sorted) {
    if (ScoreOf(key) != cut && above >= bound) break;
    cut = ScoreOf(key);
    above += WeightOf(key);
  }
  return cut;
}

// Fills `buffer` with what is in the bracket, or in another one that has the
// cut, and returns the mass above.
double Narrow(std::span<const WeightedBlock> blocks, const KeyRule& rule,
              double bound, Bracket bracket, KeyBuffer& buffer) {
  double above = buffer.Take(blocks, rule, bracket);
  if (above >= bound) {
    above = buffer.Take(blocks, rule, {.low = bracket.high});
  } else if (bracket.low != kLowest && above + buffer.Mass() < bound) {
    above = buffer.Take(blocks, rule, {.high = bracket.low});
  }
  // Sums of other parts of a block round otherwise.
  const bool is_in = above < bound && buffer.size() > 0;
  return is_in ? above : buffer.Take(blocks, rule, {});
}

}  // namespace

float FindCut(std::span<const WeightedBlock> blocks, const KeyRule& rule,
              double bound, double total) {
  int64_t num_tokens = 0;
  for (const WeightedBlock& block : blocks) num_tokens += block.size;
  KeyBuffer left(num_tokens + 2 * kChunkSize);
  Bracket bracket;
  if (num_tokens > kSortSize) {
    bracket = Guess(Sample(blocks, rule, num_tokens), bound / total);
  }
  double above = Narrow(blocks, rule, bound, bracket, left);
  while (left.size() > kSortSize) {
    const size_t size = left.size();
    const WeightedBlock block = left.block();
    bracket = Guess(Sample({&block, 1}, {}, block.size),
                    (bound - above) / left.Mass());
    KeyBuffer inner(size + 2 * kChunkSize);
    above += Narrow({&block, 1}, {}, bound - above, bracket, inner);
    left = std::move(inner);
    if (2 * left.size() > size) break;
  }
  return CutOf(left.Sorted(), above, bound);
}

}  // namespace espalier

#include "kernels/sample/top_p_threshold.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/float_limits.h"
#include "kernels/logits/score_key.h"
#include "kernels/sample/threshold_sample.h"
#include "kernels/scratch.h"

namespace espalier {
namespace {

// Few enough to compute the mass above a key again and again.
constexpr size_t kFewTokens = 256;
// Among more keys, this share is copied out before the next bisection step.
constexpr double kShareLeft = 1.0 / 8;
// A threshold in this top share of the mass is computed from the tokens above
// it: the difference from the total would have the rounding of the total.
constexpr double kFewShare = 0.25;

// The mass from any cut in a gap between keys on.
struct GapMass {
  KeyGap gap = {kInf, kInf};  // no cut
  double mass = 0;

  bool Has(float cut) const { return gap.below < cut && cut <= gap.from; }
};

// Some keys and their weights, in the thread's scratch memory.
class KeyBuffer {
 public:
  // Holds up to `capacity` tokens of whole chunks.
  KeyBuffer(ScratchUse use, size_t capacity)
      : keys_(Scratch(use, 2 * (capacity + 2 * kChunkSize))),
        weights_(keys_ + capacity + 2 * kChunkSize) {}

  // Fills the buffer with the keys in the bracket, and returns the mass above.
  // Every block's part is padded to whole chunks. REQUIRES: the bracket is open
  // at one end if there are no weights.
  double Take(const ThresholdSearch& search, const Bracket& bracket) {
    size_ = num_keys_ = 0;
    parts_.clear();
    search.has_weights() ? TakeWeighed(search, bracket)
                         : TakeUnweighed(search, bracket);
    double above = 0;
    for (const Part& part : parts_) above += part.above;
    return above;
  }

  // Returns, for each block with a part here, the mass of the bracket from
  // `cut` on plus the mass above the bracket.
  std::vector<double> MassesFrom(float cut) const {
    std::vector<double> masses;
    masses.reserve(parts_.size());
    for (size_t b = 0; b < parts_.size(); ++b) {
      masses.push_back(parts_[b].above + MassOfPart(b, cut));
    }
    return masses;
  }

  size_t num_keys() const { return num_keys_; }
  size_t num_places() const { return size_; }
  WeightedBlock block() const {
    return {keys_, weights_, static_cast<int>(size_)};
  }
  double MassFrom(float cut) const { return MassBetween(0, size_, cut); }
  KeyGap GapAround(float cut) const {
    return espalier::GapAround(keys_, static_cast<int>(size_), cut);
  }
  // Returns the moment of scores. REQUIRES: keys are scores.
  double MomentBetween(const WeightRule& rule, float low, float high) const {
    double moment = 0;
    for (size_t b = 0; b < parts_.size(); ++b) {
      const size_t begin = parts_[b].begin;
      moment +=
          MomentOfBlock(keys_ + begin, weights_ + begin,
                        static_cast<int>(EndOf(b) - begin), rule, low, high);
    }
    return moment;
  }

 private:
  struct Part {
    double above;
    size_t begin;
  };

  void TakeWeighed(const ThresholdSearch& search, const Bracket& bracket) {
    for (const WeightedBlock& block : search.blocks) {
      const BlockParts parts = PartitionBlock(
          block.values, block.weights, block.size, search.rule, bracket.low,
          bracket.high, keys_ + size_, weights_ + size_);
      parts_.push_back({parts.mass_above, size_});
      Grow(parts.num_between, 0);
    }
  }

  void TakeUnweighed(const ThresholdSearch& search, const Bracket& bracket) {
    const KeyRule& rule = search.rule;
    for (const WeightedBlock& block : search.blocks) {
      parts_.push_back({0, size_});
      const bool has_any = rule.by_distance || block.max >= bracket.low;
      if (block.mass == 0 || !has_any) continue;
      Grow(ListBlock(block.values, block.size, rule, bracket.low, bracket.high,
                     weights_ + size_),
           -kInf);
    }
    const int size = static_cast<int>(size_);
    WriteKeys(weights_, size, rule, keys_);
    WeighBlock(weights_, size, search.weight_rule, weights_);
    if (bracket.high == kInf) return;
    for (size_t b = 0; b < parts_.size(); ++b) {
      parts_[b].above =
          std::max(0.0, search.blocks[b].mass - MassOfPart(b, kLowest));
    }
  }

  size_t EndOf(size_t b) const {
    return b + 1 < parts_.size() ? parts_[b + 1].begin : size_;
  }

  double MassOfPart(size_t b, float cut) const {
    return MassBetween(parts_[b].begin, EndOf(b), cut);
  }

  double MassBetween(size_t begin, size_t end, float cut) const {
    if (begin == end) return 0;
    return MassOfBlock(keys_ + begin, weights_ + begin,
                       static_cast<int>(end - begin), {}, cut);
  }

  // Grows the buffer by `num_keys` tokens that are stored already.
  void Grow(int num_keys, float weight_of_padding) {
    size_ += num_keys;
    num_keys_ += num_keys;
    // Pads more than necessary, so that the loop has a constant length.
    std::fill_n(keys_ + size_, kChunkSize, -kInf);
    std::fill_n(weights_ + size_, kChunkSize, weight_of_padding);
    size_ = (size_ + kChunkSize - 1) / kChunkSize * kChunkSize;
  }

  float* keys_;
  float* weights_;
  size_t size_ = 0;      // whole chunks
  size_t num_keys_ = 0;  // without padding
  std::vector<Part> parts_;
};

// Narrows `bracket` to one that contains the cut. Fills `buffer` with its
// tokens, and returns the mass above. guess(bound) proposes a bracket.
template <typename Guess>
double Narrow(const ThresholdSearch& search, double bound, const Guess& guess,
              Bracket& bracket, KeyBuffer& buffer) {
  double aim = bound;
  for (int attempt = 0; attempt < 2; ++attempt) {
    bracket = guess(aim);
    const double above = buffer.Take(search, bracket);
    const double missing =
        bracket.low == kLowest ? 0 : bound - above - buffer.MassFrom(kLowest);
    // The next guess is probably off by as much as this one.
    if (above >= bound) {
      aim = bound - (above - bound);
    } else if (missing > 0) {
      aim = bound + missing;
    } else if (buffer.num_keys() > 0) {
      return above;
    }
  }
  bracket = {};
  return buffer.Take(search, bracket);
}

// Halves the bracket until it has this share of the buffered tokens, or
// contains only the cut. After a cut that separates no tokens, later cuts in
// the same gap between keys cost no pass: tokens that share a key are not
// summed again for every bit of it.
Bracket Bisect(const KeyBuffer& buffer, double bound, double share,
               const Bracket& bracket) {
  // The mass above `out` is at least the bound, the mass above `in` less.
  uint32_t out = OrdinalOf(bracket.low) - 1, in = OrdinalOf(bracket.high);
  double above_out = buffer.MassFrom(kLowest), above_in = 0;
  const double few = share * above_out;
  GapMass at_out, at_in;
  while (in - out > 1 && above_out - above_in > few) {
    const uint32_t middle = out + (in - out) / 2;
    const float cut = ScoreAt(middle + 1);
    GapMass at = at_out.Has(cut) ? at_out : at_in;
    if (!at.Has(cut)) {
      at = {.mass = buffer.MassFrom(cut)};
      const bool parts_none = at.mass == above_in || at.mass == above_out;
      if (parts_none) at.gap = buffer.GapAround(cut);
    }
    const bool is_in = at.mass < bound;
    (is_in ? in : out) = middle;
    (is_in ? above_in : above_out) = at.mass;
    (is_in ? at_in : at_out) = at;
  }
  return {ScoreAt(out + 1), ScoreAt(in)};
}

// Makes the bracket end at `key`, if it contains it.
void Split(const KeyBuffer& buffer, double bound, float key, Bracket& bracket) {
  if (key <= bracket.low || key >= bracket.high) return;
  const float above = ScoreAt(OrdinalOf(key) + 1);
  if (buffer.MassFrom(above) < bound) {
    bracket.high = key;
  } else {
    bracket.low = above;
  }
}

// Returns the cut in `outer`, all of whose tokens are in the bracket.
float CutWithin(const KeyBuffer& outer, double bound, Bracket bracket) {
  const KeyBuffer* left = &outer;
  KeyBuffer buffers[2] = {{ScratchUse::kInner0, outer.num_places()},
                          {ScratchUse::kInner1, outer.num_places()}};
  for (int i = 0; left->num_keys() > kFewTokens; i = 1 - i) {
    bracket = Bisect(*left, bound, kShareLeft, bracket);
    if (bracket.low == bracket.high) return bracket.low;
    const WeightedBlock block = left->block();
    bound -= buffers[i].Take({{&block, 1}, {}, {}}, bracket);
    left = &buffers[i];
  }
  return Bisect(*left, bound, -1, bracket).low;
}

}  // namespace

Cut FindThreshold(std::span<const WeightedBlock> blocks, const KeyRule& rule,
                  const WeightRule& weight_rule, double bound, double total,
                  double* moment) {
  const ThresholdSearch search = {blocks, rule, weight_rule};
  int64_t num_tokens = 0;
  for (const WeightedBlock& block : blocks) num_tokens += block.size;
  KeyBuffer outer(ScratchUse::kOuter, num_tokens);
  const ThresholdSample sample(search);
  Bracket bracket;
  bound -= Narrow(
      search, bound,
      [&](double aim) {
        return search.has_weights()
                   ? sample.Guess(aim, total)
                   : sample.GuessOpen(aim, total, bound < kFewShare * total);
      },
      bracket, outer);
  const bool lists_top = bracket.high == kInf;
  // An open end is far away, so the bracket is split at the sample's end.
  if (bracket.low == kLowest) Split(outer, bound, sample.lowest(), bracket);
  if (bracket.high == kInf) Split(outer, bound, sample.highest(), bracket);
  const float key = CutWithin(outer, bound, bracket);
  if (moment != nullptr && lists_top) {
    *moment = outer.MomentBetween(weight_rule, key, kInf);
  } else if (moment != nullptr && key > kLowest) {
    const float below = std::nextafter(key, -kInf);
    *moment -= outer.MomentBetween(weight_rule, kLowest, below);
  }
  return {key, outer.MassesFrom(key)};
}

}  // namespace espalier

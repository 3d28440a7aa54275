// Weighted blocks: the vector arithmetic of the sampling filters, on runs of
// scores with a weight each, its probability times a constant. Every filter
// cuts an order of tokens at a key: tokens with the cut's key or a higher one
// stay.
//
// Blocks are as in row_block.h, as is the dependence of results on the CPU.
//
// Thread safety: pure functions.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/logits/row_block.h"

namespace espalier {

// The order of tokens; the highest key comes first.
struct KeyRule {
  // Scores below have key -inf: they are dropped already. Above -inf.
  float low = -std::numeric_limits<float>::max();
  // If set, the key is the closeness of a score to origin + center, else the
  // score itself. Two addends, because a difference of close scores is exact.
  bool by_distance = false;
  float origin = 0;
  float center = 0;

  // Returns the bits that the functions below compute.
  float KeyOf(float score) const {
    if (score < low) return -std::numeric_limits<float>::infinity();
    return by_distance ? -std::abs(score - origin - center) : score;
  }
};

// The weight of a score: exp((score - max) / temperature).
struct WeightRule {
  float max = 0;          // finite; no score is above it
  float temperature = 1;  // > 0
};

// Writes the weight of each value: a term of SumOfExp, with one more rounding
// of the exponent.
//   weights  [size]  f32  out; may be `values`
void WeighBlock(const float* values, int size, const WeightRule& rule,
                float* weights);

// The sum of the weights of values from `low` on and, if requested, of weight *
// (value - max), in which exponents count as at least -87.
struct WeightSums {
  double mass = 0;
  double moment = 0;
};
WeightSums SumsOfBlock(const float* values, int size, const WeightRule& rule,
                       float low, bool with_moment);

// Returns the sum of the weights of values whose key is at least `cut`.
// REQUIRES: cut > -inf.
double MassOfBlock(const float* values, const float* weights, int size,
                   const KeyRule& rule, float cut);

// The gap between keys that `cut` lies in: every cut in (below, from] splits
// the keys alike.
struct KeyGap {
  float below = -std::numeric_limits<float>::infinity();  // highest key < cut
  float from = std::numeric_limits<float>::infinity();    // lowest key >= cut
};
// Returns -inf and +inf for keys that do not exist.
// REQUIRES: no NaN.
KeyGap GapAround(const float* keys, int size, float cut);

// Returns the sum of weight * (value - max), as above, of values in [low,
// high].
// REQUIRES: -inf < low <= high.
double MomentOfBlock(const float* values, const float* weights, int size,
                     const WeightRule& rule, float low, float high);

// The sums of weights, and of their squares, of keys from `key` on and of keys
// below it, without -inf.
struct SplitSums {
  double from = 0, from_squares = 0;
  double below = 0, below_squares = 0;
};
SplitSums SumsOfSplit(const float* keys, const float* weights, int size,
                      float key);

// Lists the values whose keys are in [low, high], in order, and returns their
// number.
//   listed  [size + kChunkSize]  f32  out; written beyond the count
// REQUIRES: -inf < low <= high.
int ListBlock(const float* values, int size, const KeyRule& rule, float low,
              float high, float* listed);

// Writes the key of each value.
//   keys  [size]  f32  out
void WriteKeys(const float* values, int size, const KeyRule& rule, float* keys);

// A block divided by a bracket: the mass above, and the keys within.
struct BlockParts {
  double mass_above = 0;  // weights of keys > high
  int num_between = 0;    // keys in [low, high], which are written out
};
// Writes the keys in [low, high] in order, and their weights.
//   keys, weights_out  [size + kChunkSize]  f32  out; written beyond the count
// REQUIRES: -inf < low <= high.
BlockParts PartitionBlock(const float* values, const float* weights, int size,
                          const KeyRule& rule, float low, float high,
                          float* keys, float* weights_out);

}  // namespace espalier

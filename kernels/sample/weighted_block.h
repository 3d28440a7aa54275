// Weighted blocks: the vector arithmetic of the filters of sampling, on runs of
// scores of which every one has a weight, its probability times a constant. All
// filters leave an order of tokens, by a key, cut somewhere: what has the cut's
// key or a higher one stays.
//
// Blocks are as in row_block.h, and so is what their results depend on.
//
// Thread safety: pure functions.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/logits/row_block.h"

namespace espalier {

// What tokens are ordered by, the highest key first.
struct KeyRule {
  // Scores below have key -inf: they are out already. Above -inf.
  float low = -std::numeric_limits<float>::max();
  // If set, the key is how near a score is to origin + center, else the score
  // itself. In two parts because a difference of close scores is exact.
  bool by_distance = false;
  float origin = 0;
  float center = 0;

  // To the bit what the functions below compute.
  float KeyOf(float score) const {
    if (score < low) return -std::numeric_limits<float>::infinity();
    return by_distance ? -std::abs(score - origin - center) : score;
  }
};

// What a score weighs: exp((score - max) / temperature).
struct WeightRule {
  float max = 0;          // finite; no score is above it
  float temperature = 1;  // > 0
};

// Writes the weight of each value. As the terms of SumOfExp, but for one more
// rounding of the exponent.
//   weights  [size]  f32  out; may be `values`
void WeighBlock(const float* values, int size, const WeightRule& rule,
                float* weights);

// The sum of the weights of values from `low` on and, if asked for, the sum of
// weight * (value - max), in which no exponent counts as less than -87.
struct WeightSums {
  double mass = 0;
  double moment = 0;
};
WeightSums SumsOfBlock(const float* values, int size, const WeightRule& rule,
                       float low, bool with_moment);

// The sum of the weights of values whose key is at least `cut`.
// REQUIRES: cut > -inf.
double MassOfBlock(const float* values, const float* weights, int size,
                   const KeyRule& rule, float cut);

// The gap between keys that `cut` lies in: every cut in (below, from] splits
// the keys alike.
struct KeyGap {
  float below = -std::numeric_limits<float>::infinity();  // highest key < cut
  float from = std::numeric_limits<float>::infinity();    // lowest key >= cut
};
// -inf and +inf where there is no such key. REQUIRES: no NaN.
KeyGap GapAround(const float* keys, int size, float cut);

// The sum of weight * (value - max), as above, of values in [low, high].
// REQUIRES: -inf < low <= high.
double MomentOfBlock(const float* values, const float* weights, int size,
                     const WeightRule& rule, float low, float high);

// The sums of weights, and of their squares, of keys from `key` on and of those
// below, without -inf.
struct SplitSums {
  double from = 0, from_squares = 0;
  double below = 0, below_squares = 0;
};
SplitSums SumsOfSplit(const float* keys, const float* weights, int size,
                      float key);

// Lists the values whose keys are in [low, high], in order, and returns how
// many there are.
//   listed  [size + kChunkSize]  f32  out; written beyond the count
// REQUIRES: -inf < low <= high.
int ListBlock(const float* values, int size, const KeyRule& rule, float low,
              float high, float* listed);

// Writes the key of each value.
//   keys  [size]  f32  out
void WriteKeys(const float* values, int size, const KeyRule& rule, float* keys);

// A block in two: what is above a bracket, and what is within.
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

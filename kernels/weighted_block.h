// Weighted blocks: the vector arithmetic of the filters of sampling, on runs of
// scores of which every one has a weight, its probability times a constant. All
// filters leave an order of tokens, by a key, cut somewhere: what has the cut's
// key or a higher one stays.
//
// Blocks are as in row_block.h, and so is what their results depend on.
//
// Thread rule: pure functions.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/row_block.h"

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

// Writes exp((value - max) / temperature) for each value and returns the sum.
// As SumOfExp, but for one more rounding of the exponent.
// REQUIRES: as SumOfExp; temperature > 0.
double WeighBlock(const float* values, int size, float max, float temperature,
                  float* weights);

// The sum of the weights of values whose key is at least `cut`.
// REQUIRES: cut > -inf.
double MassOfBlock(const float* values, const float* weights, int size,
                   const KeyRule& rule, float cut);

// The sum of weight * (value - center) of values from `low` on.
double MomentOfBlock(const float* values, const float* weights, int size,
                     float low, float center);

// A block in two: what is above a bracket, and what is within.
struct BlockParts {
  double mass_above = 0;  // weights of keys > high
  int num_between = 0;    // keys in [low, high], which are written out
};
// Writes the keys in [low, high] in order, and their weights times `scale`.
//   keys, weights_out  [size + kChunkSize]  f32  out; written beyond the count
// REQUIRES: -inf < low <= high.
BlockParts PartitionBlock(const float* values, const float* weights, int size,
                          const KeyRule& rule, float scale, float low,
                          float high, float* keys, float* weights_out);

}  // namespace espalier

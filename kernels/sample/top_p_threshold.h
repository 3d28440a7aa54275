// FindThreshold: the key at which the cumulative weight of tokens, best first,
// reaches a bound, without a sort: a weighted quickselect. top_p and typical_p
// use it, and, with all weights 1, a top_k that keeps many.
//
// A sample of the tokens gives a bracket around the threshold. One pass then
// sums the weights of the tokens above the bracket and copies those within it.
// If weights are not known yet, the bracket is open at one end: the tokens
// below the threshold, or above it, are copied and weighed, and the mass of a
// block gives the weight of the others. Bisection among the copied tokens finds
// the threshold; it copies again as their number falls. A wrong guess costs
// another pass, never the result.
//
// The result is a pure function of blocks and bound on one processor. The sums
// are in float32 within a block and in double beyond it, so it is exact but for
// bounds within rounding of a sum: 1e-7 of the total is more than it ever is.
//
// Source: Floyd and Rivest 1975, for quantiles.
#pragma once

#include <span>
#include <vector>

#include "kernels/sample/weighted_block.h"

namespace espalier {

// A run of scores and the weights of each, or how much those add up to: then
// only scores near the cut are ever weighed.
struct WeightedBlock {
  const float* values = nullptr;   // [size]
  const float* weights = nullptr;  // [size]; null: by a WeightRule
  int size = 0;                    // > 0, a multiple of kChunkSize
  // Where weights is null: of all that have a key above -inf; and the highest
  // value.
  double mass = 0;
  float max = 0;
};

struct Cut {
  float key = 0;               // what has it or a higher one stays
  std::vector<double> masses;  // [blocks], what stays of each
};

// Takes tokens from the highest key down, equal ones together, until their
// weights add up to `bound`: what stays is all whose betters have less than
// that. If they never do, all stay. `total` is the sum of the weights of all
// that have a key above -inf; it only helps to guess.
//
// If `moment` is not null, the sum of weight * (score - max) of all that have a
// key above -inf becomes that of what stays.
// REQUIRES: a token with a key above -inf, no NaN; bound > 0; either all blocks
// have weights or none has; a moment only where keys are scores and no block
// has weights.
Cut FindThreshold(std::span<const WeightedBlock> blocks, const KeyRule& rule,
                  const WeightRule& weight_rule, double bound, double total,
                  double* moment = nullptr);

}  // namespace espalier

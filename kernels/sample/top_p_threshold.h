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

// A run of scores with the weight of each, or only the sum of the weights. In
// the latter case only scores near the cut are ever weighed.
struct WeightedBlock {
  const float* values = nullptr;   // [size]
  const float* weights = nullptr;  // [size]; null: by a WeightRule
  int size = 0;                    // > 0, a multiple of kChunkSize
  // If weights is null: the mass of all scores whose key is above -inf, and the
  // highest value.
  double mass = 0;
  float max = 0;
};

struct Cut {
  float key = 0;               // keys at least this high stay
  std::vector<double> masses;  // [blocks], mass that stays of each
};

// Keeps tokens from the highest key down, equal ones together, until their
// weights add up to `bound`: a token stays if all tokens with higher keys have
// less than that. If the bound is never reached, all stay. `total` is the sum
// of the weights of all tokens with a key above -inf; it only helps to guess.
//
// If `moment` is not null, it holds the sum of weight * (score - max) of all
// tokens with a key above -inf, and becomes that of the tokens that stay.
// REQUIRES: a token with a key above -inf, no NaN; bound > 0; either all blocks
// have weights or none has; a moment only where keys are scores and no block
// has weights.
Cut FindThreshold(std::span<const WeightedBlock> blocks, const KeyRule& rule,
                  const WeightRule& weight_rule, double bound, double total,
                  double* moment = nullptr);

}  // namespace espalier

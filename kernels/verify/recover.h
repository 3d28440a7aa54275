// Recovery: samples the token that replaces a rejected draft (verify.h) from
// max(p - q, 0), renormalised.
//
// Thread safety: pure functions.
#pragma once

#include <span>

#include "base/ids.h"

namespace espalier {

// A distribution: the probability of token t is weights[t] / total.
struct TokenWeights {
  std::span<const float> weights;  // [vocab_size], >= 0
  double total = 0;                // sum of weights; 0: all have probability 0
};

// Returns the token at which the sum of max(p - q, 0) over ascending tokens
// exceeds `uniform` times its total. If it is positive nowhere, p and q differ
// only by rounding, and p is sampled; rejections are rare then. Sums in double,
// in a fixed order.
// REQUIRES: equal vocabularies; a weight of p above 0; uniform in (0, 1).
TokenId DrawRecovered(const TokenWeights& p, const TokenWeights& q,
                      double uniform);

}  // namespace espalier

// Recovery: the token that follows where verification rejects a drafted one
// (verify.h), drawn from max(p - q, 0), renormalised.
//
// Thread safety: pure functions.
#pragma once

#include <span>

#include "base/ids.h"

namespace espalier {

// A distribution: the probability of token t is weights[t] / total.
struct TokenWeights {
  std::span<const float> weights;  // [vocab_size], >= 0
  double total = 0;                // of them; 0: all have probability 0
};

// The token at which the sum of max(p - q, 0) over ascending tokens exceeds
// `uniform` of the whole. Where that is nowhere positive it is p's own: p and q
// are then the same, but for rounding, and so rarely is a token rejected where
// they are. Adds up in double, in a fixed order.
// REQUIRES: of one vocabulary; a weight of p above 0; uniform in (0, 1).
TokenId DrawRecovered(const TokenWeights& p, const TokenWeights& q,
                      double uniform);

}  // namespace espalier

// Gumbel noise: with an independent standard Gumbel number added to every
// log-probability of a distribution, the m highest tokens are a draw of m
// without replacement (Gumbel top-k), and the highest is a draw of one.
//
// The noise of a token is a pure function of (seed, rank or sample, position,
// token), so that it can be computed again from the key.
//
// Computed in double from 52 random bits, it ranges from -3.60 to 36.7 and cuts
// off a tail of only 1e-16. Noise in float32 would end at 16.6 and never choose
// an unlikely token. Host and device agree within a few ulp, not to the bit, as
// their logarithms do.
//
// Source: Kool et al. 2019, Stochastic beams and where to find them.
#pragma once

#include <cmath>

#include "base/host_device.h"
#include "base/ids.h"
#include "kernels/sample/random.h"

namespace espalier {

// -log(-log(uniform)).
// REQUIRES: uniform in (0, 1).
ESPALIER_HOST_DEVICE inline double GumbelOf(double uniform) {
  return -log(-log(uniform));
}

// Two neighbouring tokens share a block of random words: token t uses words 2
// (t % 2) and 2 (t % 2) + 1 of index t / 2, which is `random` here.
ESPALIER_HOST_DEVICE inline double GumbelUniform(const RandomWords& random,
                                                 TokenId token) {
  const int first = 2 * (token & 1);
  return UniformOf(random.words[first], random.words[first + 1]);
}

// The noise of a token: `key` has purpose kGumbelNoise.
ESPALIER_HOST_DEVICE inline double Gumbel(const RandomKey& key, TokenId token) {
  const RandomWords random = WordsAt(key, static_cast<uint32_t>(token) / 2);
  return GumbelOf(GumbelUniform(random, token));
}

}  // namespace espalier

// Random numbers as a pure function of their purpose: Philox4x32-10, a
// counter-based generator. The other requests of a batch, the row, the device
// and the order of work cannot change them, and the same arguments give the
// same number.
//
//   key      the request's seed
//   counter  (index, position, sample, purpose)
//
// Different purposes never share numbers: the number that chooses a token is
// independent of the noise of a beam.
//
// Source: Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace espalier {

enum class RandomPurpose : uint32_t {
  kDraw = 0,         // the token that a sample draws; index 0
  kGumbelNoise = 1,  // the noise of each token of a beam (gumbel.h)
  // Speculative decoding by rejection (kernels/verify/verify.h); index 0.
  kDraft = 2,    // the drafted token
  kAccept = 3,   // acceptance of a drafted token
  kRecover = 4,  // the token after a rejected one
};

// One stream of numbers.
struct RandomKey {
  uint64_t seed = 0;
  uint32_t sample = 0;    // sample of the request, or rank of the beam
  uint32_t position = 0;  // in the generated text, from 0
  RandomPurpose purpose = RandomPurpose::kDraw;
};

struct RandomWords {
  uint32_t words[4];
};

// Philox4x32-10 itself.
ESPALIER_HOST_DEVICE inline RandomWords Philox(RandomWords counter,
                                               uint64_t seed) {
  uint32_t* const c = counter.words;
  uint32_t key[2] = {static_cast<uint32_t>(seed),
                     static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * c[2];
    const uint32_t high_a = static_cast<uint32_t>(a >> 32);
    const uint32_t high_b = static_cast<uint32_t>(b >> 32);
    c[0] = high_b ^ c[1] ^ key[0];
    c[2] = high_a ^ c[3] ^ key[1];
    c[1] = static_cast<uint32_t>(b);
    c[3] = static_cast<uint32_t>(a);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

ESPALIER_HOST_DEVICE inline RandomWords WordsAt(const RandomKey& key,
                                                uint32_t index) {
  return Philox(
      {{index, key.position, key.sample, static_cast<uint32_t>(key.purpose)}},
      key.seed);
}

// Returns a number in the open interval (0, 1): an odd multiple of 2^-53, exact
// in float64, so that neither end occurs.
ESPALIER_HOST_DEVICE inline double UniformOf(uint32_t high, uint32_t low) {
  const uint64_t bits = (uint64_t{high} << 32 | low) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

ESPALIER_HOST_DEVICE inline double Uniform(const RandomKey& key,
                                           uint32_t index) {
  const RandomWords random = WordsAt(key, index);
  return UniformOf(random.words[0], random.words[1]);
}

}  // namespace espalier

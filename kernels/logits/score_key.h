// ScoreKey: a token and its score as one number, so that ranking is a sort of
// plain integers. The greater key is the better token: the higher score, ties
// to the lower token. +0 and -0 are the same score.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "base/ids.h"

namespace espalier {

// The score's bits, in an order that unsigned comparison understands, above
// the complement of the token.
using ScoreKey = uint64_t;

// Returns a score's rank among all floats in ascending order, and back: a
// higher score has a higher ordinal, and the ordinals of neighbours differ by
// 1, except for those of 0 and the float below it. Uses the builtin, because
// std::bit_cast is not available in device code.
// REQUIRES: score not NaN; ordinal of a float.
ESPALIER_HOST_DEVICE inline uint32_t OrdinalOf(float score) {
  // Adding zero makes +0 of -0.
  const uint32_t bits = __builtin_bit_cast(uint32_t, score + 0.0f);
  return (bits >> 31) ? ~bits : bits | 0x80000000u;
}
ESPALIER_HOST_DEVICE inline float ScoreAt(uint32_t ordinal) {
  return __builtin_bit_cast(float,
                            (ordinal >> 31) ? ordinal & 0x7FFFFFFFu : ~ordinal);
}

// REQUIRES: score not NaN.
ESPALIER_HOST_DEVICE inline ScoreKey MakeScoreKey(float score, TokenId token) {
  return ScoreKey{OrdinalOf(score)} << 32 | ~static_cast<uint32_t>(token);
}

ESPALIER_HOST_DEVICE inline float ScoreOf(ScoreKey key) {
  return ScoreAt(static_cast<uint32_t>(key >> 32));
}

ESPALIER_HOST_DEVICE inline TokenId TokenOf(ScoreKey key) {
  return static_cast<TokenId>(~static_cast<uint32_t>(key));
}

}  // namespace espalier

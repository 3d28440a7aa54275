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

// The builtin, because std::bit_cast is not for device code.
// REQUIRES: score not NaN.
ESPALIER_HOST_DEVICE inline ScoreKey MakeScoreKey(float score, TokenId token) {
  // Adding zero makes +0 of -0.
  const uint32_t bits = __builtin_bit_cast(uint32_t, score + 0.0f);
  const uint32_t ordered = (bits >> 31) ? ~bits : bits | 0x80000000u;
  return ScoreKey{ordered} << 32 | ~static_cast<uint32_t>(token);
}

ESPALIER_HOST_DEVICE inline float ScoreOf(ScoreKey key) {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  return __builtin_bit_cast(float,
                            (ordered >> 31) ? ordered & 0x7FFFFFFFu : ~ordered);
}

ESPALIER_HOST_DEVICE inline TokenId TokenOf(ScoreKey key) {
  return static_cast<TokenId>(~static_cast<uint32_t>(key));
}

}  // namespace espalier

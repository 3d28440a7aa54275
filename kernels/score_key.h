// ScoreKey: a token and its score as one number, so that ranking is a sort of
// plain integers. The greater key is the better token: the higher score, ties
// to the lower token. +0 and -0 are the same score.
#pragma once

#include <bit>
#include <cstdint>

#include "base/ids.h"

namespace espalier {

// The score's bits, in an order that unsigned comparison understands, above
// the complement of the token.
using ScoreKey = uint64_t;

// REQUIRES: score not NaN.
inline ScoreKey MakeScoreKey(float score, TokenId token) {
  // Adding zero makes +0 of -0.
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);
  const uint32_t ordered = (bits >> 31) ? ~bits : bits | 0x80000000u;
  return ScoreKey{ordered} << 32 | ~static_cast<uint32_t>(token);
}

inline float ScoreOf(ScoreKey key) {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  return std::bit_cast<float>((ordered >> 31) ? ordered & 0x7FFFFFFFu
                                              : ~ordered);
}

inline TokenId TokenOf(ScoreKey key) {
  return static_cast<TokenId>(~static_cast<uint32_t>(key));
}

}  // namespace espalier

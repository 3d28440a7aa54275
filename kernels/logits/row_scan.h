// ScanRow: one pass over a row of logits, block by block, that gives its
// softmax and its best tokens together.
//
// NaN counts as -inf. Of logits that are +inf the limit is taken: those tokens
// share all probability evenly, every other has none.
//
// Thread safety: pure functions.
#pragma once

#include <cmath>
#include <limits>
#include <span>

#include "base/ids.h"
#include "kernels/logits/best_tokens.h"
#include "kernels/logits/running_log_sum.h"

namespace espalier {

inline float NanAsMinusInf(float value) {
  return std::isnan(value) ? -std::numeric_limits<float>::infinity() : value;
}

// What makes log-probabilities of a row's logits.
struct LogSoftmax {
  float max;  // -inf: no token is possible
  float log_sum;

  // One float32 rounding an operation. The difference of equal infinities
  // counts as 0.
  float LogProb(float logit) const {
    const float difference = logit == max ? 0.0f : NanAsMinusInf(logit) - max;
    return difference - log_sum;
  }
};

// 4 KiB: a block, and the two copies that it may need, stay in a first-level
// cache of 32 KiB, and the work between blocks is small against their own.
inline constexpr int kRowBlockSize = 1024;

// A run of a row as row_block.h wants it: whole chunks, no NaN.
struct RowBlock {
  const float* values;
  int size;
  float max;
};

// The block of `row` that starts at `begin`, in place where it can be. `copy`
// holds it where it cannot: the last one, filled up with -inf, and one that
// contains NaN.
//   copy  [kRowBlockSize]
RowBlock ReadRowBlock(std::span<const float> row, int begin, float* copy);

// Offers the tokens of a block, of which `first_token` is the first.
void AddBest(const RowBlock& block, TokenId first_token, BestTokens& best);

// The softmax of the raw row. What stands for election is edit(block, begin),
// a block of as many values, instead of each raw block.
template <typename Edit>
LogSoftmax ScanRow(std::span<const float> logits, BestTokens& best,
                   const Edit& edit) {
  RunningLogSum sum;
  float clean[kRowBlockSize];
  for (int begin = 0; begin < std::ssize(logits); begin += kRowBlockSize) {
    const RowBlock raw = ReadRowBlock(logits, begin, clean);
    sum.Add(raw.values, raw.size, raw.max);
    const RowBlock block = edit(raw, begin);
    if (block.max > best.threshold()) AddBest(block, begin, best);
  }
  return {sum.max(), sum.log_sum()};
}

}  // namespace espalier

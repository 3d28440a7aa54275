// ScanRow: one pass over a row of logits, block by block, that computes its
// softmax and its best tokens.
//
// NaN counts as -inf. If logits are +inf, the limit is taken: those tokens
// share all probability evenly, and every other has none.
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

// The terms that turn a row's logits into log-probabilities.
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

// A run of a row in the form of row_block.h: whole chunks, no NaN.
struct RowBlock {
  const float* values;
  int size;
  float max;
};

// Returns the block of `row` that starts at `begin`. Points into the row if
// possible. Else it is copied to `copy`: the last block, padded with -inf, and
// blocks with NaN.
//   copy  [kRowBlockSize]
RowBlock ReadRowBlock(std::span<const float> row, int begin, float* copy);

// Adds the tokens of a block, whose first token is `first_token`.
void AddBest(const RowBlock& block, TokenId first_token, BestTokens& best);

// Returns the softmax of the raw row. Candidates come from edit(block, begin),
// a block of as many values, in place of each raw block.
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

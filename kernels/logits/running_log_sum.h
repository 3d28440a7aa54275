// RunningLogSum: the log-sum-exp of a row that is read once, block by block.
// The sum is relative to the highest logit so far and rescaled when a higher
// one comes ("online softmax", Milakov and Gimelshein 2018,
// https://arxiv.org/abs/1805.02867). It is in double, so the number of blocks
// costs no accuracy.
//
// Infinite logits follow the limit of softmax: if a logit is +inf, the tokens
// at +inf share all probability evenly and every other has none.
//
// Thread safety: one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/logits/row_block.h"

namespace espalier {

class RunningLogSum {
 public:
  // Adds a block, whose highest value is `block_max`. Returns its part of the
  // sum, relative to the updated max() and, if `with_moment` and max() is
  // finite, its moment.
  // REQUIRES: as SumOfExp on `values` and `size`.
  ExpMoments Add(const float* values, int size, float block_max,
                 bool with_moment = false) {
    if (block_max == -kInf) return {};
    if (block_max > max_) {
      sum_ *= std::exp(static_cast<double>(max_) - block_max);
      max_ = block_max;
    }
    const ExpMoments part = PartOf(values, size, with_moment);
    sum_ += part.sum;
    return part;
  }

  // Returns the highest logit so far; -inf if none was higher.
  float max() const { return max_; }

  // Returns the sum of exp(logit - max).
  double sum() const { return sum_; }

  // Returns log(sum of exp(logit - max)), rounded once to float32; >= 0 once a
  // logit above -inf was added.
  float log_sum() const { return static_cast<float>(std::log(sum_)); }

 private:
  static constexpr float kInf = std::numeric_limits<float>::infinity();

  ExpMoments PartOf(const float* values, int size, bool with_moment) const {
    if (max_ == kInf) {
      return {.sum = 1.0 * std::count(values, values + size, kInf)};
    }
    return with_moment ? MomentsOfExp(values, size, max_)
                       : ExpMoments{.sum = SumOfExp(values, size, max_)};
  }

  float max_ = -kInf;
  double sum_ = 0;
};

}  // namespace espalier

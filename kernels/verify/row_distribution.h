// RowDistribution: the distribution that plain sampling (kernels/sample/
// sample.h) draws from in one row, as verification asks for it: the probability
// of one token, or the weights of all.
//
// Thread safety: one thread, on which one at a time gives probabilities or
// weights (kept_tokens.h).
#pragma once

#include <optional>

#include "base/ids.h"
#include "kernels/sample/kept_tokens.h"
#include "kernels/sample/processed_logits.h"
#include "kernels/verify/verify.h"

namespace espalier {

class RowDistribution {
 public:
  // Reads the row.
  explicit RowDistribution(const VerifyRow& row);
  RowDistribution(const RowDistribution&) = delete;
  RowDistribution& operator=(const RowDistribution&) = delete;

  bool has_nan() const { return row_.has_nan(); }
  // Whether any token is possible; not where there is a NaN.
  bool has_tokens() const { return best_ != kNoToken || kept_.has_value(); }

  // 0 for all if !has_tokens().
  double Probability(TokenId token) const;

  // Writes a weight of every token and returns what they add up to, 0 if
  // !has_tokens().
  //   weights  [vocab_size, up to whole chunks (row_block.h)]  f32  out
  double WriteWeights(float* weights) const;

  // Of the raw row, nats, to the bit Draw::log_prob. Stays valid when another
  // row is read. REQUIRES: !has_nan().
  float LogProb(TokenId token) const { return row_.LogProb(token); }

 private:
  ProcessedLogits row_;
  // Neither, or one of them: greedy rows have the first.
  TokenId best_ = kNoToken;
  std::optional<KeptTokens> kept_;
};

// Writes weights that are 1 at `token` and 0 elsewhere.
//   weights  [vocab_size, up to whole chunks]  f32  out
void WriteOneHot(TokenId token, int vocab_size, float* weights);

}  // namespace espalier

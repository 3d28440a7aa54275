// RowDistribution: the distribution of plain sampling (kernels/sample/
// sample.h) in one row, for verification: the probability of one token, or the
// weights of all.
//
// Thread safety: one thread. Only the thread's last one may give probabilities
// or weights (kept_tokens.h).
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
  // True if any token is possible; false if a logit is NaN.
  bool has_tokens() const { return best_ != kNoToken || kept_.has_value(); }

  // Returns 0 for all tokens if !has_tokens().
  double Probability(TokenId token) const;

  // Writes a weight of every token and returns their sum, 0 if !has_tokens().
  //   weights  [vocab_size, up to whole chunks (row_block.h)]  f32  out
  double WriteWeights(float* weights) const;

  // Returns the token's log-probability in the raw row, nats: the bits of
  // Draw::log_prob. Stays valid when another row is read.
  // REQUIRES: !has_nan().
  float LogProb(TokenId token) const { return row_.LogProb(token); }

 private:
  ProcessedLogits row_;
  // At most one of these is set: the first for greedy rows.
  TokenId best_ = kNoToken;
  std::optional<KeptTokens> kept_;
};

// Writes weights that are 1 at `token` and 0 elsewhere.
//   weights  [vocab_size, up to whole chunks]  f32  out
void WriteOneHot(TokenId token, int vocab_size, float* weights);

}  // namespace espalier

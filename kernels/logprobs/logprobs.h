// Log-probabilities for reports: from a row of logits, the log-probability and
// the rank of given tokens, and the best tokens. They are raw: edits,
// temperature and filters do not affect reports.
//
// A log-probability has the bits of selection (select.h), so that those of a
// beam add up to its cum_log_prob if nothing was edited. The log-probability of
// a draw (sample.h) may be rounded differently. Ranks and the best are by
// logit, because rounding can make two log-probabilities equal:
//   rank   1 + tokens of a higher logit; equal tokens share a rank
//   best   ties to the lower token; -inf is never among them
//
// NaN counts as -inf. In a row without a logit above -inf every
// log-probability is -inf, every rank 1, and there are no best.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "base/token_log_prob.h"

namespace espalier {

struct TokenRank {
  float log_prob = 0;  // nats
  int rank = 1;
  friend bool operator==(const TokenRank&, const TokenRank&) = default;
};

struct RowLogProbs {
  std::vector<TokenRank> tokens;  // in the order of the given tokens
  std::vector<TokenScore> best;   // best first, at most num_best
};

// Returns the log-probabilities of one row.
//   logits    [vocab_size]  f32  host; not changed
//   tokens    in [0, vocab_size), in any order, also more than once
//   num_best  >= 0; clamped to vocab_size
// Makes one pass of selection for the best max(num_best, tokens), which gives
// the ranks of given tokens among them. Each other token costs a comparison
// with every logit, 16 an instruction.
RowLogProbs LogProbsOfRow(std::span<const float> logits,
                          std::span<const TokenId> tokens, int num_best);

// Returns the logarithm of the probability that the model gives all of some
// tokens together, <= 0; -inf without any.
//   logits  [vocab_size]  f32  host; not changed
//   tokens  in [0, vocab_size), each once
// That of a single token is its log-probability, to the bit.
float LogMassOf(std::span<const float> logits, std::span<const TokenId> tokens);

namespace reference {

// Reference implementation: a full sort, the log-sum-exp in double. Ranks and
// the best agree to the bit; log-probabilities as in select.h.
RowLogProbs LogProbsOfRow(std::span<const float> logits,
                          std::span<const TokenId> tokens, int num_best);
// In double.
double LogMassOf(std::span<const float> logits,
                 std::span<const TokenId> tokens);

}  // namespace reference
}  // namespace espalier

// Log-probabilities: what a model thought of tokens, for reports. Of a row of
// logits: the log-probability and the rank of given tokens, and the best tokens
// beside them; raw, as no edit, temperature or filter touches a report.
//
// A log-probability is that of selection (select.h), to the bit, so that those
// of a beam add up to its cum_log_prob where nothing was edited; that of a draw
// (sample.h) may be rounded otherwise. Ranks and the best are by logit, for
// rounding can make two log-probabilities equal:
//   rank   1 + tokens of a higher logit; equals share theirs
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
  std::vector<TokenRank> tokens;  // as asked for
  std::vector<TokenScore> best;   // best first, at most as many as asked for
};

// Of one row.
//   logits    [vocab_size]  f32  host; not changed
//   tokens    in [0, vocab_size), in any order, also more than once
//   num_best  >= 0; clamped to vocab_size
// One pass of selection for the best max(num_best, tokens), which gives the
// ranks of those tokens that are among them; each other token costs a
// comparison with every logit, 16 of them an instruction.
RowLogProbs LogProbsOfRow(std::span<const float> logits,
                          std::span<const TokenId> tokens, int num_best);

namespace reference {

// The twin: a full sort, the log-sum-exp in double. Ranks and the best agree to
// the bit; log-probabilities as select.h says.
RowLogProbs LogProbsOfRow(std::span<const float> logits,
                          std::span<const TokenId> tokens, int num_best);

}  // namespace reference
}  // namespace espalier

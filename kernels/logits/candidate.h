// What is chosen of rows of logits, by whoever chooses: Candidate, and by which
// score: ScoreDomain.
#pragma once

#include "base/ids.h"

namespace espalier {

// What edits act on, and what the choice is by. The log-sum-exp is that of the
// raw row in both.
enum class ScoreDomain {
  // Beam search: edits act on log-probabilities, and cum includes them. Of the
  // tokens without an edit, the m of the highest logits stand for election
  // with all edited ones; the best m of these by (log_prob, lower token) are
  // the result, in this order. Rounding can give two logits one log_prob: they
  // are chosen by logit, and ranked by token.
  kLogProbs,
  // Greedy and sampling: edits act on logits, and cum sums the model's own
  // log-probabilities, so edits show only in the choice: the best m by
  // (edited logit, lower token), in this order.
  kLogits,
};

// One continuation of a group.
struct Candidate {
  int beam = 0;  // index of the row within its group
  TokenId token = 0;
  float cum_log_prob = 0;  // nats; of the sequence including `token`
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

}  // namespace espalier

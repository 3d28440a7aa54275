// Candidate: a continuation chosen from rows of logits. ScoreDomain: the score
// that it is chosen by.
#pragma once

#include "base/ids.h"

namespace espalier {

// The score that edits change and that the choice compares. Both domains use
// the log-sum-exp of the raw row.
enum class ScoreDomain {
  // Beam search: edits act on log-probabilities, and cum includes them. The
  // candidates are the m unedited tokens with the highest logits, and all
  // edited tokens. The result is the best m of these by (log_prob, lower
  // token), in this order. Rounding can give two logits one log_prob: they are
  // chosen by logit, and ranked by token.
  kLogProbs,
  // Greedy and sampling: edits act on logits, and cum sums the model's own
  // log-probabilities, so edits affect only the choice: the best m by (edited
  // logit, lower token), in this order.
  kLogits,
};

// One continuation of a group.
struct Candidate {
  int beam = 0;  // index of the row within its group
  TokenId token = 0;
  float cum_log_prob = 0;  // nats, including `token`
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

}  // namespace espalier

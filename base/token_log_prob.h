// What a model thought of tokens.
#pragma once

#include <vector>

#include "base/ids.h"

namespace espalier {

// One token of a row of logits.
struct TokenScore {
  TokenId token = 0;
  // Nats. Where score edits change log-probabilities, after them; where they
  // change logits, before (ScoreDomain, kernels/select/select.h).
  float log_prob = 0;
  friend bool operator==(const TokenScore&, const TokenScore&) = default;
};

// What the model thought of one token.
struct TokenLogProb {
  TokenId token = 0;
  float log_prob = 0;            // nats, of the raw row
  int rank = 0;                  // 1 + tokens of the row that are likelier
  std::vector<TokenScore> best;  // of the row, best first
  friend bool operator==(const TokenLogProb&, const TokenLogProb&) = default;
};

}  // namespace espalier

// Log-probabilities of tokens.
#pragma once

#include <optional>
#include <vector>

#include "base/ids.h"

namespace espalier {

// One token of a row of logits.
struct TokenScore {
  TokenId token = 0;
  // Nats; after score edits if these apply to log-probabilities, before them if
  // they apply to logits (ScoreDomain, kernels/select/select.h).
  float log_prob = 0;
  friend bool operator==(const TokenScore&, const TokenScore&) = default;
};

// Log-probability of one token, and the best tokens of its row.
struct TokenLogProb {
  TokenId token = 0;
  float log_prob = 0;            // nats; unprocessed unless reports_processed
  int rank = 0;                  // 1 + number of likelier tokens in the row
  std::vector<TokenScore> best;  // best tokens of the row, best first
  // The logarithm of the model's own probability of all tokens that the
  // request's constraint allowed in its place, <= 0; if it is asked for.
  std::optional<float> legal_log_mass = {};
  friend bool operator==(const TokenLogProb&, const TokenLogProb&) = default;
};

}  // namespace espalier

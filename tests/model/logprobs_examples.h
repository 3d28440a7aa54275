// What transformers computed in float64 for models/en-fr: 24 sequences, the 12
// best tokens after every position (tests/data/README.md).
#pragma once

#include <vector>

#include "base/ids.h"
#include "tests/model/feeder.h"

namespace espalier::testing {

struct LogProbsExample {
  std::vector<TokenId> tokens;
  std::vector<std::vector<TokenId>> top_tokens;    // [tokens][12]
  std::vector<std::vector<double>> top_log_probs;  // nats
};

std::vector<LogProbsExample> ReadLogProbsExamples();

// Expects that softmax of each of `logits_rows`, the logits after every token,
// gives the example's tokens their log-probabilities, and that they are its
// best tokens, in this order up to differences below the tolerance.
void ExpectLogProbs(const LogitsRows& logits_rows,
                    const LogProbsExample& example, double tolerance);

}  // namespace espalier::testing

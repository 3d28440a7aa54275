// Float64 results of transformers for models/en-fr: 24 sequences, the 12 best
// tokens after every position (tests/data/README.md).
#pragma once

#include <boost/json/value_to.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "tests/model/feeder.h"
#include "tests/source_tree.h"

namespace espalier::testing {

struct LogProbsExample {
  std::vector<TokenId> tokens;
  std::vector<std::vector<TokenId>> top_tokens;    // [tokens][12]
  std::vector<std::vector<double>> top_log_probs;  // nats
};

inline std::vector<LogProbsExample> ReadLogProbsExamples() {
  std::ifstream file(SourcePath("tests/data/logprobs.jsonl"));
  std::vector<LogProbsExample> examples;
  for (std::string line; std::getline(file, line);) {
    const json::value value = *ParseJson(line);
    examples.push_back(
        {json::value_to<std::vector<TokenId>>(value.at("tokens")),
         json::value_to<std::vector<std::vector<TokenId>>>(
             value.at("top_tokens")),
         json::value_to<std::vector<std::vector<double>>>(
             value.at("top_logprobs"))});
  }
  return examples;
}

// Expects that softmax of each of `logits_rows`, the logits after every token,
// gives the example's tokens their log-probabilities, and that they are its
// best tokens, in this order up to differences below the tolerance.
void ExpectLogProbs(const LogitsRows& logits_rows,
                    const LogProbsExample& example, double tolerance);

}  // namespace espalier::testing

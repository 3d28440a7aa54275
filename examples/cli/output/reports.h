// Log-probabilities as espalier generate prints them.
#pragma once

#include <span>
#include <string>

#include "exec_request/step_plan.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::cli {

// Returns a table of one line per token; empty without tokens:
//       log prob   rank  token
//        -0.3120      1  " Où"  of " Où" -0.3120, " où" -2.7381
// Tokens without a text of their own have their name in the vocabulary, </s> or
// <0x0A>, or #32001 if it has none.
std::string FormatLogProbs(std::span<const TokenLogProb> logprobs,
                           const Tokenizer& tokenizer);

}  // namespace espalier::cli

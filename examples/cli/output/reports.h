// Log-probabilities as espalier generate prints them.
#pragma once

#include <span>
#include <string>

#include "exec_request/step_plan.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::cli {

// A table of one line a token; nothing if there is none:
//       log prob   rank  token
//        -0.3120      1  " Où"  of " Où" -0.3120, " où" -2.7381
// Tokens without a text of their own are what the vocabulary calls them, </s>
// or <0x0A>, and #32001 if it does not know them.
std::string FormatLogProbs(std::span<const TokenLogProb> logprobs,
                           const Tokenizer& tokenizer);

}  // namespace espalier::cli

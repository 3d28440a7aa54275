// Log-probabilities as espalier generate prints them.
#pragma once

#include <span>
#include <string>

#include "exec_request/step_plan.h"
#include "text/token_spellings.h"

namespace espalier::cli {

// A table of one line a token; nothing if there is none:
//       log prob   rank  token
//        -0.3120      1  " Où"  of " Où" -0.3120, " où" -2.7381
// Tokens without a text of their own are ids.
std::string FormatLogProbs(std::span<const TokenLogProb> logprobs,
                           const TokenSpellings& spellings);

}  // namespace espalier::cli

// What espalier generate prints for people.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "examples/cli/runtime.h"

namespace espalier::cli {

// What became of texts. Those that were cancelled count nowhere.
struct Outcome {
  int num_answered = 0;  // the failed ones included
  int num_failed = 0;
};

// Hypotheses, best first, with their scores:
//     -0.1529  Où est la gare ?
// With them what else the request asked for, and the seed if it drew.
// REQUIRES: answer.result.ok().
std::string FormatHypotheses(const Answer& answer);

// On stderr: which text failed, by its beginning, and why.
void PrintFailure(const std::string& text, const absl::Status& status);

}  // namespace espalier::cli

// What espalier generate prints for people.
#pragma once

#include <string>

#include "examples/cli/answer.h"

namespace espalier::cli {

// Hypotheses, best first, with their scores:
//     -0.1529  Où est la gare ?
// With them what else the request asked for, and the seed if it drew.
// REQUIRES: answer.result.ok().
std::string FormatHypotheses(const Answer& answer);

}  // namespace espalier::cli

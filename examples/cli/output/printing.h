// Human-readable output of espalier generate.
#pragma once

#include <span>
#include <string>

#include "espalier/generator.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::cli {

// Hypotheses, best first, with their scores:
//     -0.1529  Où est la gare ?
// Further lines of a text stand under its first (HangingIndent). With them what else the request asked for, and the seed if it drew. `samples`
// are the numbers of the hypotheses, [2] in front of a score, if there are any.
std::string FormatHypotheses(const Generation& generation,
                             const Tokenizer& tokenizer,
                             std::span<const int> samples = {});

}  // namespace espalier::cli

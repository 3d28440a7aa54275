// Human-readable output of espalier generate.
#pragma once

#include <span>
#include <string>

#include "espalier/generator.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::cli {

// Returns the hypotheses, best first, with their scores:
//     -0.1529  Où est la gare ?
// Further lines of a text are indented (HangingIndent). Other requested outputs
// follow, and the seed of a sampling request. `samples` are the numbers of the
// hypotheses, printed as [2] before a score; empty: none are printed.
std::string FormatHypotheses(const Generation& generation,
                             const Tokenizer& tokenizer,
                             std::span<const int> samples = {});

}  // namespace espalier::cli

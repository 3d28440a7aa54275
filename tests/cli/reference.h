// The reference: 300 requests answered by Hugging Face transformers
// (tests/data/README.md), as lines for `espalier batch`.
#pragma once

#include <string>

namespace espalier::testing {

// The reference's requests, asking for all hypotheses it returned.
std::string ReferenceRequests();

// Expects `output`, what the program wrote for them, to have the reference's
// hypotheses: the same tokens and texts, scores within 1e-4 relative, and the
// same order where scores differ by more.
void ExpectReferenceHypotheses(const std::string& output);

}  // namespace espalier::testing

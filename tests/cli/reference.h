// The reference: 300 requests answered by Hugging Face transformers
// (tests/data/README.md), as lines for `espalier batch`.
#pragma once

#include <cstddef>
#include <string>

namespace espalier::testing {

inline constexpr size_t kAllReferenceLines = 300;

// The reference's requests, asking for all hypotheses it returned; the first
// `most` of them.
std::string ReferenceRequests(size_t most = kAllReferenceLines);

// Compares the program's `output` with the reference's hypotheses: the same
// tokens and texts, scores within 1e-4 relative, and the same order where
// scores differ by more.
void ExpectReferenceHypotheses(const std::string& output,
                               size_t most = kAllReferenceLines);

}  // namespace espalier::testing

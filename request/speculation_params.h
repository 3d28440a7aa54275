// SpeculationParams: whether a request speculates and how: what drafts tokens,
// how many a step, and how the model's verification accepts them
// (docs/speculation.md).
//
// Greedy search and beam search give the same hypotheses with drafts and
// without. Samples follow the same distribution; with kCoupled they are the
// same tokens, too.
#pragma once

#include <cstdint>
#include <string_view>

namespace espalier {

// Source of draft tokens.
enum class SpeculationMethod {
  kNone,    // off, even if the engine has a default
  kNgram,   // the sequence's own text: what followed its last few tokens before
  kSuffix,  // the same, by the longest suffix that occurred before
  // Tokens that the constraint of the request forces; kNgram and kSuffix draft
  // these, too.
  kConstraint,
  kDraft,  // a draft model
};

// Acceptance rule for drafts of a sample. Ignored for greedy search and beam
// search.
enum class SpeculationMode {
  // Rejection sampling, Leviathan et al. 2023: the most drafts that any rule
  // accepts token by token. Which tokens are drawn depends on the drafts.
  kRejection,
  // A draft is accepted if it is the token that the request draws at that place
  // without speculation, so that drafts change no result.
  kCoupled,
};

// More than pays at any acceptance that has been measured, few enough that a
// step's rows stay few.
inline constexpr int64_t kMaxDraftTokens = 32;

struct SpeculationParams {
  SpeculationMethod method = SpeculationMethod::kNone;
  // Tokens drafted for a sequence in a step, at most: fewer where fewer pay. In
  // [1, kMaxDraftTokens]. Where a row of verification costs a twentieth of a
  // step, 5 give 95% of what any number gives at acceptances up to 0.8.
  int64_t num_tokens = 5;
  SpeculationMode mode = SpeculationMode::kCoupled;
  // Drafts num_tokens in every step that has room for them, whether they pay or
  // not, so that something is verified: for comparisons with and without. The
  // request format does not have it.
  bool always_drafts = false;

  friend bool operator==(const SpeculationParams&,
                         const SpeculationParams&) = default;
};

// "off", "ngram", "suffix", "constraint", "draft".
std::string_view NameOf(SpeculationMethod method);
// "rejection", "coupled".
std::string_view NameOf(SpeculationMode mode);

}  // namespace espalier

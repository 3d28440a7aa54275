#include "speculate/suffix_drafter.h"

#include <algorithm>

#include "base/check.h"

namespace espalier {

SuffixDrafter::SuffixDrafter(const SuffixOptions& options) : options_(options) {
  CHECK(options.max_spec_factor > 0 && options.min_match_length >= 1)
      << options.max_spec_factor << " tokens for each of at least "
      << options.min_match_length;
}

void SuffixDrafter::Append(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) automaton_.Append(token);
}

void SuffixDrafter::Draft(int max_tokens, std::vector<TokenId>* draft) const {
  draft->clear();
  SuffixAutomaton::State state = automaton_.repeated_suffix();
  const int match_length = automaton_.length(state);
  if (match_length < options_.min_match_length) return;
  const double wanted = std::max(1.0, options_.max_spec_factor * match_length);
  for (int i = 0; i < max_tokens && i + 1 <= wanted; ++i) {
    // Only substrings at the end of the text have no next token. Their link
    // occurs elsewhere, so it has one.
    if (!automaton_.has_next(state)) state = automaton_.link(state);
    draft->push_back(automaton_.best_token(state));
    state = automaton_.best_next(state);
  }
}

std::unique_ptr<Drafter> SuffixDrafter::Fork() const {
  return std::make_unique<SuffixDrafter>(*this);
}

}  // namespace espalier

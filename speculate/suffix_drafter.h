// SuffixDrafter: drafts from the longest suffix of the text that occurred
// before (suffix_automaton.h): the token that followed it most often, then the
// token that followed the extended suffix most often, and so on. If an extended
// suffix occurs only at the end of the text, it continues with the next shorter
// suffix that occurred before. The draft has max_spec_factor tokens for each
// token of the suffix, rounded down, at least one.
//
// Source: Oliaro et al. 2024, SuffixDecoding, https://arxiv.org/abs/2411.04975,
// applied to one request's text. suffix_automaton.h defines the counts.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "speculate/drafter.h"
#include "speculate/suffix_automaton.h"

namespace espalier {

struct SuffixOptions {
  double max_spec_factor = 1.0;  // > 0
  int min_match_length = 1;      // >= 1; shorter suffixes draft nothing
};

class SuffixDrafter : public Drafter {
 public:
  explicit SuffixDrafter(const SuffixOptions& options = {});

  void Append(std::span<const TokenId> tokens) override;
  void Draft(int max_tokens, std::vector<TokenId>* draft) const override;
  std::unique_ptr<Drafter> Fork() const override;

 private:
  SuffixOptions options_;
  SuffixAutomaton automaton_;
};

}  // namespace espalier

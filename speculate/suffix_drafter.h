// SuffixDrafter: drafts by the longest suffix of the text that occurred before,
// whatever its length (suffix_automaton.h): the token that followed it most
// often, then what followed most often the suffix with that token, and so on.
// Where the text ends, it goes on with the next shorter suffix that occurred
// before. The longer the suffix, the more it drafts: max_spec_factor tokens for
// each of its tokens, rounded down, at least one.
//
// Source: Oliaro et al. 2024, SuffixDecoding, https://arxiv.org/abs/2411.04975,
// of one request's text. Most often counts as in suffix_automaton.h.
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

// SpeculationFigures: what drafts were worth, counted in steps of sequences:
// what a sequence drafted, what of that was accepted, and what it got.
//
// A sequence may end within its drafts, by an EOS id that was drafted or by a
// stop string. It gets nothing of what verification has after that: the drafts
// there count as drafted and not as accepted, and the token that the model adds
// does not count. So each accepted token is one that a sequence has.
//
// All beams of a search count as one sequence, whose tokens are steps of the
// search: accepted are those that were followed on drafts.
#pragma once

#include <array>
#include <cstdint>

#include "request/speculation_params.h"

namespace espalier {

struct SpeculationFigures {
  // Steps of a sequence in which the model verified drafts, be they none; and
  // the tokens that these gave it.
  int64_t num_target_steps = 0;
  int64_t num_tokens = 0;
  int64_t num_drafted_tokens = 0;
  int64_t num_accepted_tokens = 0;
  // The same by a draft's place, from 0; a draft after one that was rejected
  // is drafted and not accepted.
  std::array<int64_t, kMaxDraftTokens> num_drafted_at = {};
  std::array<int64_t, kMaxDraftTokens> num_accepted_at = {};

  // Counts a step, which gave so many tokens: those accepted and one more, or
  // none more if the sequence ended with the last of them.
  // REQUIRES: 0 <= num_accepted <= num_drafted <= kMaxDraftTokens,
  // num_given >= 1, num_accepted <= num_given <= num_accepted + 1.
  void Record(int num_drafted, int num_accepted, int num_given);
  void Add(const SpeculationFigures& other);
  // What came after `earlier`, which these figures were once.
  void Subtract(const SpeculationFigures& earlier);

  // Of the tokens drafted, those that were accepted, in [0, 1]; 0 of none.
  double AcceptanceRate() const;
  // Tokens that a step gave, on average; 1 if there were no steps.
  double TokensPerStep() const;

  friend bool operator==(const SpeculationFigures&,
                         const SpeculationFigures&) = default;
};

}  // namespace espalier

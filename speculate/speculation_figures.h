// SpeculationFigures: what drafts were worth, counted.
#pragma once

#include <array>
#include <cstdint>

#include "request/speculation_params.h"

namespace espalier {

struct SpeculationFigures {
  // Steps of a sequence in which the model verified drafts, be they none.
  int64_t num_target_steps = 0;
  int64_t num_drafted_tokens = 0;
  int64_t num_accepted_tokens = 0;
  // The same by a draft's place, from 0; a draft behind one that was rejected
  // is drafted and not accepted.
  std::array<int64_t, kMaxDraftTokens> num_drafted_at = {};
  std::array<int64_t, kMaxDraftTokens> num_accepted_at = {};

  // Counts a step. REQUIRES: 0 <= num_accepted <= num_drafted
  // <= kMaxDraftTokens.
  void Record(int num_drafted, int num_accepted);
  void Add(const SpeculationFigures& other);
  // What came after `earlier`, which these figures were once.
  void Subtract(const SpeculationFigures& earlier);

  // Of the tokens drafted, those that were accepted, in [0, 1]; 0 of none.
  double AcceptanceRate() const;
  // That the steps gave, the one that the model adds to each included; 1 if
  // there were no steps. At most: a step in which a sequence ends within its
  // drafts adds none, and what follows a stop string there is accepted, too.
  double TokensPerStep() const;

  friend bool operator==(const SpeculationFigures&,
                         const SpeculationFigures&) = default;
};

}  // namespace espalier

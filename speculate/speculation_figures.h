// SpeculationFigures: counters of speculative decoding: tokens that were
// drafted, accepted and generated. A draft is the list of tokens that one step
// verifies for a sequence; its tokens are the drafted tokens.
//
// A sequence may end within its draft, by a drafted EOS id or by a stop string.
// Drafted tokens after the end then count as drafted and not as accepted, and
// the model's own token does not count. Each accepted token is thus a token of
// the sequence.
//
// All beams of a search count as one sequence, whose tokens are the steps of
// the search. A step is drafted if the drafted paths reach it, and accepted if
// all surviving beams stay on these paths.
#pragma once

#include <array>
#include <cstdint>

#include "request/speculation_params.h"

namespace espalier {

struct SpeculationFigures {
  // Steps of sequences that speculate, also if nothing was drafted, and the
  // tokens that these steps generated.
  int64_t num_target_steps = 0;
  int64_t num_tokens = 0;
  int64_t num_drafted_tokens = 0;
  int64_t num_accepted_tokens = 0;
  // [position in the draft], from 0. Drafted tokens after a rejected one count
  // as drafted and not as accepted.
  std::array<int64_t, kMaxDraftTokens> num_drafted_at = {};
  std::array<int64_t, kMaxDraftTokens> num_accepted_at = {};

  // Counts a step that generated `num_given` tokens: the accepted ones and one
  // more, or none more if the sequence ended with the last accepted one.
  // REQUIRES: 0 <= num_accepted <= num_drafted <= kMaxDraftTokens,
  // num_given >= 1, num_accepted <= num_given <= num_accepted + 1.
  void Record(int num_drafted, int num_accepted, int num_given);
  void Add(const SpeculationFigures& other);
  // Subtracts an earlier value of the same counters.
  void Subtract(const SpeculationFigures& earlier);

  // Returns accepted tokens per drafted token, in [0, 1]; 0 if there are none.
  double AcceptanceRate() const;
  // Returns the mean number of generated tokens per step; 1 without steps.
  double TokensPerStep() const;

  friend bool operator==(const SpeculationFigures&,
                         const SpeculationFigures&) = default;
};

}  // namespace espalier

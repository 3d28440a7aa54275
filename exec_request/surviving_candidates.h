// SurvivingCandidates: the candidates of a step that become the beams of the
// next one, or its samples. Executors that advance a group without the host,
// and the checks of their results, share this one rule.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "exec_request/step_plan.h"
#include "kernels/logits/candidate.h"

namespace espalier {

// Returns the indices of the first `num_slots` of `candidates` that are tokens
// and not among `eos_token_ids`, ascending: the next beams, by rank.
std::vector<int> SurvivingCandidates(std::span<const Candidate> candidates,
                                     int num_slots,
                                     std::span<const TokenId> eos_token_ids);

// A candidate that continues, and the place after it.
struct SurvivingCandidate {
  int idx = 0;
  ConstraintPlace place;
};

// As above, with a constraint: the first `num_slots` tokens after which one may
// follow.
//   places  of the rows, by Candidate::beam
std::vector<SurvivingCandidate> SurvivingCandidates(
    std::span<const Candidate> candidates, int num_slots,
    const ConstraintTables& constraint,
    std::span<const ConstraintPlace> places);

// True if candidates of beams with BeamSelection::may_lack are as many as were
// asked for, although fewer than `num_slots` of them survive: others might.
bool LacksBeams(int max_candidates, int num_candidates, int num_slots,
                int num_surviving);

// LacksBeams, for the result of a selection.
bool LacksBeams(const PlanSelection& asked,
                std::span<const Candidate> candidates);

}  // namespace espalier

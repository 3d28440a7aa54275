// SurvivingCandidates: the candidates of a step that become the beams of the
// next one in SelectionKind::kBeams. Executors that advance a group without the
// host, and the checks of their results, share this one rule.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/logits/candidate.h"

namespace espalier {

// Returns the indices of the first `num_slots` of `candidates` that are tokens
// and not among `eos_token_ids`, ascending: the next beams, by rank.
std::vector<int> SurvivingCandidates(std::span<const Candidate> candidates,
                                     int num_slots,
                                     std::span<const TokenId> eos_token_ids);

}  // namespace espalier

// SurvivingCandidates: which candidates of a step are the beams of the next one
// in SelectionKind::kBeams. Whoever goes on from an answer without its group's
// decision, or checks that one did, goes by this one rule.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/logits/candidate.h"

namespace espalier {

// Indices of the first `num_slots` of `candidates` that are tokens and do not
// end in one of `eos_token_ids`, ascending: the next beams, by rank.
std::vector<int> SurvivingCandidates(std::span<const Candidate> candidates,
                                     int num_slots,
                                     std::span<const TokenId> eos_token_ids);

}  // namespace espalier

// BestOfSelection: creates the candidate accumulator of a kBeams selection,
// limited by the selection's ranking (RowRanking::num_first).
#pragma once

#include <memory>

#include "exec_request/step_plan.h"
#include "kernels/select/best_candidates.h"

namespace espalier {

// REQUIRES: `selection` outlives the result.
inline std::unique_ptr<BestCandidates> BestOfSelection(
    const PlanSelection& selection) {
  const int num_beams = selection.ranking.num_first;
  if (num_beams == 0) {
    return std::make_unique<BestCandidates>(selection.num_candidates);
  }
  return std::make_unique<BestCandidates>(selection.num_candidates, num_beams,
                                          selection.eos_token_ids);
}

}  // namespace espalier

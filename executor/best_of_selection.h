// BestOfSelection: the best candidates of a selection of kBeams, as its ranking
// says which count (RowRanking::num_first).
#pragma once

#include <memory>

#include "exec_request/step_plan.h"
#include "kernels/select/best_candidates.h"

namespace espalier {

// `selection` outlives it.
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

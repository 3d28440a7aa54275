// BestOfSelection: creates the candidate accumulator of a BeamSelection,
// limited by BeamSelection::num_kept.
#pragma once

#include <memory>

#include "exec_request/step_plan.h"
#include "kernels/select/best_candidates.h"

namespace espalier {

// REQUIRES: `selection` is a BeamSelection, and outlives the result.
inline std::unique_ptr<BestCandidates> BestOfSelection(
    const PlanSelection& selection) {
  const BeamSelection& beams = *selection.as_beams();
  if (beams.num_kept == 0) {
    return std::make_unique<BestCandidates>(beams.num_candidates);
  }
  return std::make_unique<BestCandidates>(beams.num_candidates, beams.num_kept,
                                          selection.eos_token_ids);
}

}  // namespace espalier

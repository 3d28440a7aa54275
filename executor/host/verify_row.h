// VerifyRowOf: one row of a selection with drafts (PlanSelection::drafts), its
// drafted tokens verified by the rows of logits that they have
// (kernels/verify/verify.h).
//
// Thread safety: a pure function.
#pragma once

#include <span>
#include <vector>

#include "exec_request/step_plan.h"
#include "kernels/logits/score_edits.h"

namespace espalier {

// The tokens of row `row`'s sample: what is accepted of its draft, and one
// more. Each has the sum of log-probabilities up to it.
//   first_logits  of the row (PlanSelection::FirstLogits)
//   edits         EditsOf(*selection.params)
//   logits        [plan.num_logits, vocab_size]  of the plan
std::vector<Candidate> VerifyRowOf(const PlanSelection& selection, int row,
                                   int first_logits, const ScoreEdits& edits,
                                   std::span<const float> logits,
                                   int vocab_size);

}  // namespace espalier

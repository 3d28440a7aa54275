// VerifyRowOf: verifies the drafted tokens of one row of a selection with
// drafts (SampleDrafts), by their rows of logits
// (kernels/verify/verify.h).
//
// Thread safety: a pure function.
#pragma once

#include <span>
#include <vector>

#include "exec_request/step_plan.h"
#include "kernels/logits/score_edits.h"

namespace espalier {

// Returns the accepted tokens of row `row`'s draft and one more token, each
// with the sum of log-probabilities up to it.
//   first_logits  first row of logits of the row (PlanSelection::FirstLogits)
//   edits         EditsOf(*selection.params)
//   logits        [plan.num_logits, vocab_size]  f32  host
std::vector<Candidate> VerifyRowOf(const PlanSelection& selection, int row,
                                   int first_logits, const ScoreEdits& edits,
                                   std::span<const float> logits,
                                   int vocab_size);

}  // namespace espalier

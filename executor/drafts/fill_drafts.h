// FillDrafts: completes a plan whose rows verify drafts that are made just
// before the step (DraftSequence::verified_by). The rows get the drafted
// tokens, and lose the tokens, rows of logits and pages that were planned for
// longer drafts. The result is the plan that would have been written with the
// drafts known.
//
//   planned   a ? ? | b ? ? | c          drafted  d e | (f ends the text)
//   filled    a d e | b     | c
//
// Rows of samples that have ended are removed (executor/drafts/rows_ahead.h).
//
// Thread safety: a pure function.
#pragma once

#include <span>

#include "exec_request/step_plan.h"

namespace espalier {

// Truncates each of `*drafts` [plan->drafting] that this plan verifies at the
// end of its sequence, and inserts it. Leaves other drafts alone. Removes rows
// `ended_rows`, and then selections without rows. REQUIRES: verified_by names
// other existing rows, planned for as many tokens.
void FillDrafts(int page_size, std::span<DraftedTokens> drafts, StepPlan* plan,
                std::span<const int> ended_rows = {});

}  // namespace espalier

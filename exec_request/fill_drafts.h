// FillDrafts: completes a plan whose rows verify drafts that are made just
// before the step (DraftSequence::verified_by): the rows feed what was drafted,
// and lose the tokens, rows of logits and pages of what was not. It is then the
// plan that would have been written had the drafts been known.
//
//   planned   a ? ? | b ? ? | c          drafted  d e | (f ends the text)
//   filled    a d e | b     | c
//
// Thread safety: a pure function.
#pragma once

#include <span>

#include "exec_request/step_plan.h"

namespace espalier {

// Cuts each of `*drafts` [plan->drafting] that this plan verifies where it ends
// a sequence, and fills it in. Others are left alone.
// REQUIRES: what verified_by names exists, with as many tokens to draft.
void FillDrafts(int page_size, std::span<DraftedTokens> drafts, StepPlan* plan);

}  // namespace espalier

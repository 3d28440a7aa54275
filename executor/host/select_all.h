// SelectAll: selection and sampling for all groups of a plan, on the host, with
// all threads of a pool.
//
// A group never holds all candidates of all its rows at once: later rows drop
// candidates below its best so far (best_candidates.h, candidate_filter.h).
// Samples that draw from one row read it once.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "exec_request/step_plan.h"

namespace espalier {

// Returns one result for each of `plan.selections`.
//   logits  [plan.num_logits, vocab_size]  f32  host
// A group's result depends only on its own rows. Throws std::bad_alloc. Returns
// early, with meaningless results, once plan.stop is requested.
std::vector<SelectionResult> SelectAll(const StepPlan& plan,
                                       std::span<const float> logits,
                                       int vocab_size, ThreadPool& pool);

}  // namespace espalier

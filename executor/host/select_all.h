// What executors on the host do with a plan's logits: the kernels of selection
// and sampling for every group, on all threads.
//
// A group never has all candidates of all its rows at once: its best so far
// tell later rows what cannot matter any more (best_candidates.h,
// contenders.h). Samples that draw from one row share the reading of it.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "exec_request/step_plan.h"

namespace espalier {

// One answer for each of `plan.selections`.
//   logits  [plan.num_logits, vocab_size]  f32  host
// A group's answer depends on its own rows alone. Throws std::bad_alloc. Once
// plan.stop is requested it returns soon, with answers that mean nothing.
std::vector<SelectionResult> SelectAll(const StepPlan& plan,
                                       std::span<const float> logits,
                                       int vocab_size, ThreadPool& pool);

}  // namespace espalier

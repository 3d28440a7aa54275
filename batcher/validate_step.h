// The page invariants over a scheduler's state, for debug builds and tests
// (SchedulerOptions::validate_steps).
#pragma once

#include <span>

#include "beam/group_pages.h"
#include "exec_request/step_plan.h"
#include "pages/host_pool.h"
#include "pages/page_pool.h"
#include "pages/prefix_tree.h"

namespace espalier {

// Dies unless the invariants of pages/validate.h hold of `pool` and `host`,
// whose holders are `groups` alone, and of what `plan` swaps, copies and
// writes. Throws std::bad_alloc.
void ValidateStep(const PagePool& pool, const HostPool& host,
                  const PrefixTree& tree,
                  std::span<const GroupPages* const> groups,
                  const StepPlan& plan);

}  // namespace espalier

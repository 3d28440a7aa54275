// Checks the invariants of pages (pages/validate.h) over all that a scheduler
// holds, and over what its next plan does to them: no page is leaked, written
// by two, or written while others read it. For debug builds and tests
// (SchedulerOptions::validate_steps).
//
// Cost: each page of every group and of the prefix tree once, a step. Time and
// memory grow with the pages in use, not with the plan.
#pragma once

#include <span>

#include "beam/pages/group_pages.h"
#include "exec_request/step_plan.h"
#include "pages/host_pool.h"
#include "pages/page_pool.h"
#include "pages/prefix_tree.h"

namespace espalier {

// Dies, naming the page and the invariant, unless they hold of `pool` and
// `host`, whose pages `groups` and `tree` hold and nobody else, and of what
// `plan` swaps, copies and writes. Throws std::bad_alloc.
void ValidateStep(const PagePool& pool, const HostPool& host,
                  const PrefixTree& tree,
                  std::span<const GroupPages* const> groups,
                  const StepPlan& plan);

}  // namespace espalier

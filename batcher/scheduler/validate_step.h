// ValidateStep: checks the page invariants (pages/validate.h) over all pages of
// a scheduler and over the effects of its next plan: no page is leaked, written
// by two rows, or written while others read it. For debug builds and tests
// (SchedulerOptions::validate_steps).
//
// Cost: visits each page of every group and of the prefix tree once per step.
// Time and memory grow with the pages in use, not with the plan.
#pragma once

#include <span>

#include "beam/pages/group_pages.h"
#include "exec_request/step_plan.h"
#include "pages/host_pool.h"
#include "pages/page_pool.h"
#include "pages/prefix_tree.h"

namespace espalier {

// Aborts, naming the page and the invariant, unless `pool`, `host` and the
// swaps, copies and writes of `plan` fulfil all invariants. Only `groups` and
// `tree` may hold pages. Throws std::bad_alloc.
void ValidateStep(const PagePool& pool, const HostPool& host,
                  const PrefixTree& tree,
                  std::span<const GroupPages* const> groups,
                  const StepPlan& plan);

}  // namespace espalier

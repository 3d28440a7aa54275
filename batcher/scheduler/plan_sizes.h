// PlanSizes: the sizes of one plan. The next plan is usually similar, so
// reserving these sizes lets it be written with a few allocations, whatever the
// number of groups.
#pragma once

#include <cstddef>

#include "exec_request/step_plan.h"

namespace espalier {

struct PlanSizes {
  size_t num_rows = 0;
  size_t num_tokens = 0;
  size_t num_page_indices = 0;
  size_t num_sources = 0;
  size_t num_selections = 0;
  size_t num_continuations = 0;
  size_t num_copies = 0;

  static PlanSizes Of(const StepPlan& plan) {
    return {.num_rows = plan.rows.size(),
            .num_tokens = plan.tokens.size(),
            .num_page_indices = plan.page_indices.size(),
            .num_sources = plan.sources.size(),
            .num_selections = plan.selections.size(),
            .num_continuations = plan.continuations.size(),
            .num_copies = plan.page_copies.size()};
  }

  // Throws std::bad_alloc.
  void Reserve(StepPlan* plan) const {
    plan->rows.reserve(num_rows);
    plan->tokens.reserve(num_tokens);
    plan->page_indptr.reserve(num_rows + 1);
    // Each sequence may begin one page.
    plan->page_indices.reserve(num_page_indices + num_rows);
    plan->sources.reserve(num_sources);
    plan->selections.reserve(num_selections);
    plan->continuations.reserve(num_continuations);
    plan->page_copies.reserve(num_copies);
  }
};

}  // namespace espalier

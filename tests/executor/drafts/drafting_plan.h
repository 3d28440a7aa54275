// A plan of one sample that drafts and verifies, for tests of executors.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "exec_request/step_plan.h"

namespace espalier::testing {

// Returns a plan with a row that verifies its drafts.
inline StepPlan PlanThatDrafts(RequestId request) {
  auto params = std::make_shared<SelectionParams>();
  StepPlan plan;
  plan.rows = {{.num_tokens = 4, .first_position = 9, .num_logits = 4}};
  plan.tokens = {2, 0, 0, 0};
  plan.num_logits = 4;
  for (int page = 0; page < 5; ++page) {
    plan.page_indices.push_back(PageId{page});
  }
  plan.page_indptr = {0, 5};
  PlanSelection selection = {.request = request, .params = params};
  selection.num_rows = 1;
  selection.num_generated = 1;
  selection.cum_log_probs = {0};
  selection.slots = {0};
  selection.choice =
      DrawSelection{.samples = {0}, .drafts = {.tokens = {{0, 0, 0}}}};
  plan.selections.push_back(std::move(selection));
  plan.drafting.push_back(
      {.request = request,
       .prompt = std::make_shared<const std::vector<TokenId>>(9, 1),
       .generated = {2},
       .num_tokens = 3,
       .params = params,
       .verified_by = {0, 0, 0}});
  return plan;
}

}  // namespace espalier::testing

// DraftsBeforeSteps: a draft model whose drafts the same plan verifies, as
// DraftingExecutor runs it, but on this thread and for one plan at a time.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "exec_request/fill_drafts.h"
#include "executor/host/draft_model.h"
#include "executor/host/drafted_groups.h"

namespace espalier::testing {

class DraftsBeforeSteps {
 public:
  // `page_size` applies to the target and to the draft model, which outlives
  // this.
  DraftsBeforeSteps(int page_size, DraftModel* draft)
      : page_size_(page_size), draft_(draft) {}

  // Completes the plan, which then has no draft requests; End takes its result.
  absl::Status Begin(StepPlan* plan) {
    drafts_.clear();
    asked_ = groups_.Expand(plan);
    if (plan->drafting.empty()) {
      draft_->ForgetEnded(plan->ended);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(drafts_, draft_->Run(*plan));
    num_rows_ = draft_->num_rows();
    FillDrafts(page_size_, drafts_, plan);
    plan->drafting.clear();
    return absl::OkStatus();
  }
  // Makes `*result` the answer to the plan that Begin was given.
  void End(absl::StatusOr<StepResult>* result) {
    groups_.Advance(&asked_, result);
    if (!result->ok()) return;
    asked_.Restore(&drafts_, &**result);
    (*result)->drafts = std::move(drafts_);
    (*result)->num_draft_rows = std::exchange(num_rows_, 0);
  }

  int num_groups() const { return groups_.num_groups(); }

 private:
  const int page_size_;
  DraftModel* const draft_;
  DraftedGroups groups_;
  DraftedGroups::Asked asked_;  // request of the running plan
  std::vector<DraftedTokens> drafts_;
  int num_rows_ = 0;
};

}  // namespace espalier::testing

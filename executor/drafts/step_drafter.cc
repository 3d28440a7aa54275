#include "executor/drafts/step_drafter.h"

#include <algorithm>

#include "base/check.h"
#include "base/memory.h"
#include "base/status.h"
#include "exec_request/fill_drafts.h"
#include "executor/drafts/catch_model_errors.h"

namespace espalier {
namespace {

bool IsVerifiedNow(const DraftSequence& sequence) {
  return sequence.verified_by.plan_row >= 0;
}

// Replaces a pending draft by its tokens.
// REQUIRES: the step that verified the draft has ended.
void TakePending(DraftedTokens* draft) {
  if (draft->pending.empty()) return;
  draft->tokens = draft->pending.Tokens();
  draft->logits = {};  // the step has read them
  draft->pending = {};
}

}  // namespace

bool StepDrafter::MustWait(const StepPlan& plan) const {
  return !running_.empty() && DraftedGroups::HasContinuations(plan) &&
         !CanFollow(plan);
}

bool StepDrafter::CanFollow(const StepPlan& plan) const {
  return may_pend_ && model_->follows_verification() && running_.size() == 1 &&
         groups_.CanFollow(plan, Unread(*running_.front()));
}

void StepDrafter::Begin(StepPlan* plan, Step* step) {
  CHECK(!MustWait(*plan)) << "a plan was begun before results that it needs";
  // Without this the groups would keep the state from before the plan.
  step->asked_ = UntilThereIsMemory([&] {
    return running_.empty() ? groups_.Expand(plan)
                            : groups_.Expand(plan, Unread(*running_.front()));
  });
  UntilThereIsMemory([&] { running_.push_back(step); });
  model_->ForgetEnded(plan->ended);
  if (plan->drafting.empty()) return;
  step->drafts_.resize(plan->drafting.size());
  if (std::ranges::none_of(plan->drafting, IsVerifiedNow)) {
    StepPlan& later = step->later_.emplace();
    later.drafting = std::move(plan->drafting);
    later.max_draft_step_tokens = plan->max_draft_step_tokens;
    later.stop = plan->stop;
  } else {
    Draft(*plan, step);
    FillDrafts(page_size_, step->drafts_, plan);
  }
  plan->drafting.clear();
}

void StepDrafter::DraftForLater(Step* step) {
  if (!step->later_.has_value()) return;
  Draft(*step->later_, step);
  step->later_.reset();
}

void StepDrafter::Draft(const StepPlan& plan, Step* step) {
  absl::StatusOr<std::vector<DraftedTokens>> drafted =
      CatchModelErrors<std::vector<DraftedTokens>>(
          "draft model", [&] { return model_->Run(plan, may_pend_); },
          [] { return ResourceExhausted("not enough memory to draft"); });
  if (drafted.ok()) {
    step->drafts_ = *std::move(drafted);
    step->time_ = model_->draft_time();
    step->num_rows_ = model_->num_rows();
  } else if (!plan.stop.stop_requested()) {
    step->status_ = drafted.status();
  }
}

void StepDrafter::End(Step* step, absl::StatusOr<StepResult>* result) {
  CHECK(!running_.empty() && running_.front() == step)
      << "a plan ended before an earlier one";
  running_.pop_front();
  UntilThereIsMemory([&] { groups_.Advance(&step->asked_, result); });
  if (!result->ok()) return;
  UntilThereIsMemory([&] {
    for (DraftedTokens& draft : step->drafts_) TakePending(&draft);
    step->asked_.Restore(&step->drafts_, &**result);
  });
  (*result)->drafts = std::move(step->drafts_);
  (*result)->draft_time = step->time_;
  (*result)->num_draft_rows = step->num_rows_;
  (*result)->draft_status = std::move(step->status_);
}

}  // namespace espalier

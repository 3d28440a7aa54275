#include "executor/drafts/step_drafter.h"

#include "base/check.h"
#include "base/memory.h"
#include "base/status.h"
#include "exec_request/fill_drafts.h"
#include "executor/drafts/catch_model_errors.h"

namespace espalier {
namespace {

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
  std::vector<size_t> now;
  StepPlan& later = step->later_.emplace();
  for (size_t i = 0; i < plan->drafting.size(); ++i) {
    if (plan->drafting[i].verified_by.plan_row >= 0) {
      now.push_back(i);
    } else {
      step->later_indices_.push_back(i);
      later.drafting.push_back(std::move(plan->drafting[i]));
    }
  }
  later.max_draft_step_tokens = plan->max_draft_step_tokens;
  later.stop = plan->stop;
  if (now.empty()) return plan->drafting.clear();
  std::erase_if(plan->drafting, [](const DraftSequence& sequence) {
    return sequence.verified_by.plan_row < 0;
  });
  std::vector<DraftedTokens> drafts = Draft(*plan, step);
  later.max_draft_step_tokens = model_->num_tokens_left();
  drafts.resize(now.size());
  FillDrafts(page_size_, drafts, plan);
  Place(std::move(drafts), now, step);
  plan->drafting.clear();
}

void StepDrafter::DraftForLater(Step* step) {
  if (step->later_indices_.empty()) return;
  Place(Draft(*step->later_, step), step->later_indices_, step);
  step->later_indices_.clear();
}

std::vector<DraftedTokens> StepDrafter::Draft(const StepPlan& plan,
                                              Step* step) {
  absl::StatusOr<std::vector<DraftedTokens>> drafted =
      CatchModelErrors<std::vector<DraftedTokens>>(
          "draft model", [&] { return model_->Run(plan, may_pend_); },
          [] { return ResourceExhausted("not enough memory to draft"); });
  if (!drafted.ok()) {
    if (!plan.stop.stop_requested()) step->status_ = drafted.status();
    return {};
  }
  step->time_ += model_->draft_time();
  step->num_rows_ += model_->num_rows();
  return *std::move(drafted);
}

void StepDrafter::Place(std::vector<DraftedTokens> drafts,
                        std::span<const size_t> indices, Step* step) {
  for (size_t i = 0; i < drafts.size(); ++i) {
    step->drafts_[indices[i]] = std::move(drafts[i]);
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

#include "executor/drafts/step_drafter.h"

#include <algorithm>

#include "base/check.h"
#include "base/memory.h"
#include "base/status.h"
#include "executor/drafts/catch_model_errors.h"
#include "executor/drafts/fill_drafts.h"

namespace espalier {
namespace {

// Replaces a pending draft by its tokens.
// REQUIRES: the step that verified the draft has ended.
void TakePending(DraftedTokens& draft) {
  if (draft.pending.empty()) return;
  draft.tokens = draft.pending.Tokens();
  draft.logits = {};  // the step has read them
  draft.pending = {};
}

}  // namespace

bool StepDrafter::MustWait(const StepPlan& plan) const {
  if (running_.empty() || !RowsAhead::HasRowsAhead(plan)) return false;
  return !may_pend_ || !model_->follows_verification() || running_.size() > 1 ||
         !RowsAhead::CanFollow(plan, LastRunning());
}

RowsAhead::Unread StepDrafter::LastRunning() const {
  if (running_.empty()) return {};
  return {&running_.back()->asked_, running_.back()->drafts_};
}

void StepDrafter::Begin(StepPlan* plan, Step* step) {
  CHECK(!MustWait(*plan)) << "a plan was begun before results that it needs";
  // Without this the groups would keep the state from before the plan.
  step->asked_ = UntilThereIsMemory(
      [&] { return rows_ahead_.Complete(plan, LastRunning()); });
  for (Step* const running : running_) {
    if (!running->later_.has_value()) continue;
    UntilThereIsMemory([&] {
      running->ended_.insert(running->ended_.end(), plan->ended.begin(),
                             plan->ended.end());
    });
  }
  UntilThereIsMemory([&] { running_.push_back(step); });
  model_->ForgetEnded(plan->ended);
  const std::vector<int>& ended_rows = step->asked_.ended_rows;
  if (plan->drafting.empty() && ended_rows.empty()) return;
  const auto is_for_later = [](const DraftSequence& sequence) {
    return sequence.verified_by.plan_row < 0;
  };
  StepPlan& later = step->later_.emplace();
  for (DraftSequence& sequence : plan->drafting) {
    if (is_for_later(sequence)) later.drafting.push_back(std::move(sequence));
  }
  std::erase_if(plan->drafting, is_for_later);
  step->later_drafts_.resize(later.drafting.size());
  later.max_draft_step_tokens = plan->max_draft_step_tokens;
  later.stop = plan->stop;
  step->drafts_.resize(plan->drafting.size());
  if (!plan->drafting.empty()) {
    Draft(*plan, step, &step->drafts_);
    later.max_draft_step_tokens = model_->num_tokens_left();
  } else if (ended_rows.empty()) {
    return;
  }
  FillDrafts(page_size_, step->drafts_, plan, ended_rows);
  plan->drafting.clear();
}

void StepDrafter::DraftForLater(Step* step) {
  if (step->later_drafts_.empty() || !step->later_.has_value()) return;
  Draft(*step->later_, step, &step->later_drafts_);
  model_->ForgetEnded(step->ended_);  // it has state of these again
  step->later_.reset();
}

void StepDrafter::Draft(const StepPlan& plan, Step* step,
                        std::vector<DraftedTokens>* drafts) {
  absl::StatusOr<std::vector<DraftedTokens>> drafted =
      CatchModelErrors<std::vector<DraftedTokens>>(
          "draft model", [&] { return model_->Run(plan, may_pend_); },
          [] { return ResourceExhausted("not enough memory to draft"); });
  if (!drafted.ok()) {
    if (!plan.stop.stop_requested()) step->status_ = drafted.status();
    return;
  }
  step->time_ += model_->draft_time();
  step->num_rows_ += model_->num_rows();
  *drafts = *std::move(drafted);
}

void StepDrafter::End(Step* step, absl::StatusOr<StepResult>* result) {
  CHECK(!running_.empty() && running_.front() == step)
      << "a plan ended before an earlier one";
  running_.pop_front();
  UntilThereIsMemory([&] {
    if (result->ok()) std::ranges::for_each(step->drafts_, TakePending);
    rows_ahead_.Advance(step->drafts_, &step->asked_, result);
  });
  if (!result->ok()) return;
  (*result)->drafts = std::move(step->later_drafts_);
  (*result)->draft_time = step->time_;
  (*result)->num_draft_rows = step->num_rows_;
  (*result)->draft_status = std::move(step->status_);
}

}  // namespace espalier

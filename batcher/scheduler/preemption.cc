#include "batcher/scheduler/preemption.h"

namespace espalier {

Preemption::Preemption(const ModelDescription& model,
                       const SchedulerOptions& options, int max_step_tokens,
                       const PagePool* pool, HostPool* host_pool,
                       RunningGroups* groups, TimedStats* counts)
    : max_step_tokens_(max_step_tokens),
      pool_(pool),
      host_pool_(host_pool),
      groups_(groups),
      counts_(counts),
      saving_policy_(model, options.preempted_pages) {}

int64_t Preemption::NumPagesNow(const RunningGroup& running,
                                bool decodes) const {
  const SequenceGroup& group = *running.group;
  if (group.prefilling()) {
    return group.is_waiting_for_prefix()
               ? 0
               : group.NumPagesForStep(max_step_tokens_);
  }
  return decodes && group.can_plan() ? group.NumPagesForStep(1) : 0;
}

PlanRoom Preemption::MakeRoom(bool decodes, StepPlan* plan) {
  PlanRoom room;
  for (RunningGroup& running : *groups_) {
    if (running.is_preempted()) continue;
    if (running.group->prefilling()) {
      groups_->MatchPrefix(running, room.num_pages, plan);
    }
    int64_t num_now = NumPagesNow(running, decodes);
    while (room.num_pages + num_now > pool_->num_available()) {
      RunningGroup* const last = groups_->LastRunning();
      if (last == &running) num_now = 0;
      Preempt(*last, plan);
      room.was_made = true;
      if (last == &running) break;
    }
    room.num_pages += num_now;
    if (running.group->prefilling()) room.num_prefill_pages += num_now;
  }
  return room;
}

void Preemption::Preempt(RunningGroup& running, StepPlan* plan) {
  if (running.group->pages().holds_pages()) {
    ++counts_->stats.num_preemptions;
    running.was_preempted = true;
  }
  saved_.push_back(running.group->id());
  running.Preempt({.pool = host_pool_->num_slots() > 0 ? host_pool_ : nullptr,
                   .min_tokens = saving_policy_.min_tokens()},
                  plan);
  if (!running.group->is_saving()) saved_.pop_back();
}

void Preemption::DropSaves(StepPlan* plan) {
  for (const RequestId request : saved_) {
    RunningGroup* running = groups_->Find(request);
    if (running != nullptr) running->group->DropSaved();
  }
  saved_.clear();
  plan->page_saves.clear();
}

void Preemption::AnswerSaves(const PlanInFlight& plan, bool are_saved) {
  for (const RequestId request : plan.saved) {
    RunningGroup* running = groups_->Find(request);
    if (running == nullptr) continue;
    if (are_saved) {
      running->group->OnSaved();
    } else {
      running->group->DropSaved();
    }
  }
}

}  // namespace espalier

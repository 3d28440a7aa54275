#include "batcher/scheduler/step_planner.h"

#include <algorithm>

namespace espalier {

StepPlanner::StepPlanner(const ModelDescription& model,
                         const SchedulerOptions& options, const PagePool* pool,
                         RunningGroups* groups, Admission* admission,
                         Preemption* preemption, PlansInFlight* in_flight,
                         TimedStats* counts)
    : share_of_prefill_(options.prefill_share),
      max_step_tokens_(admission->max_step_tokens()),
      max_logits_(model.limits.max_beams),
      max_drafted_length_(model.limits.max_drafted_length),
      pool_(pool),
      groups_(groups),
      admission_(admission),
      preemption_(preemption),
      in_flight_(in_flight),
      writer_(model, max_step_tokens_, pool, groups, counts),
      prefill_share_(options.prefill_share, max_step_tokens_) {}

void StepPlanner::Write(StepPlan* plan) {
  may_admit_ = true;
  writer_.Begin(plan);
  const StepDemand demand = groups_->TakeDemand();
  const bool waits = !in_flight_->empty() && !demand.is_any_schedulable &&
                     !(demand.may_any_draft_ahead && CanAnyDraftAhead());
  const bool decodes = !waits && !IsForPrefillAlone(demand);
  Fill(decodes, demand, plan);
  // If no prompt had room after all, the beams get the step.
  if (plan->empty() && !waits && !decodes) {
    Fill(true, groups_->FindDemand(), plan);
  }
}

void StepPlanner::Fill(bool decodes, const StepDemand& demand, StepPlan* plan) {
  writer_.BeginStep(plan);
  // If all groups decode and each has a page available, no room must be made.
  const bool has_room = !demand.is_any_prefilling && !demand.may_any_draft &&
                        demand.max_decode_pages() <= pool_->num_available();
  const PlanRoom room =
      has_room ? PlanRoom() : preemption_->MakeRoom(decodes, plan);
  // If memory is short, drafts would take pages that others need next, and so
  // would rows of continuations beside the first.
  const bool may_draft = decodes && demand.may_any_draft;
  if (!room.was_made && (may_draft || demand.is_any_scoring)) {
    writer_.SetDraftRoom(RoomForDrafts(room));
  }
  if (decodes && has_room && demand.num_idle == 0) {
    writer_.PlanDecode(*groups_, plan);
  } else if (decodes) {
    PlanDecodes(plan);
  }
  if (demand.is_any_prefilling) PlanPrefills(plan);
  // Preempted groups resume before others start. Admitted groups share and load
  // pages, which are not available for drafts any more.
  writer_.SetDraftRoom({});
  const bool may_come_in =
      !admission_->waiting().empty() || demand.is_any_preempted;
  if (!room.was_made && may_come_in) Admit(plan);
}

void StepPlanner::PlanDecodes(StepPlan* plan) {
  for (RunningGroup& running : *groups_) {
    const SequenceGroup& group = *running.group;
    if (group.prefilling() || !group.can_plan()) continue;
    if (group.has_to_draft() &&
        !CanDraftAhead(group, writer_.budget().drafts)) {
      continue;  // until its result has arrived
    }
    writer_.PlanGroup(running, plan);
  }
}

void StepPlanner::PlanPrefills(StepPlan* plan) {
  for (RunningGroup& running : *groups_) {
    const SequenceGroup& group = *running.group;
    if (group.prefilling() && !group.is_waiting_for_prefix() &&
        writer_.HasRoomFor(group)) {
      writer_.PlanPrefill(running, plan);
    }
  }
}

void StepPlanner::Admit(StepPlan* plan) {
  while (may_admit_ && !writer_.budget().is_used_up()) {
    RunningGroup* const running = admission_->AdmitNext();
    if (running == nullptr) return;
    groups_->MatchPrefix(*running, 0, plan);
    const SequenceGroup& group = *running->group;
    if (!group.is_waiting_for_prefix() && writer_.HasRoomFor(group)) {
      writer_.PlanGroup(*running, plan);
    }
  }
}

bool StepPlanner::IsForPrefillAlone(const StepDemand& demand) {
  int64_t num_left = std::max(max_step_tokens_ - demand.num_decode_rows, 0);
  // A scoring request with too few rows of logits gets no token.
  if (demand.is_any_scoring && NeedsRowsOf(demand.num_decode_rows)) {
    num_left = 0;
  }
  return prefill_share_.IsNextForPrefillAlone(
      num_left, prefill_share_.IsShort(num_left) && CanAnyFeed());
}

bool StepPlanner::CanAnyFeed() {
  return std::ranges::any_of(*groups_,
                             [](const RunningGroup& running) {
                               return running.group->prefilling() &&
                                      !running.group->is_waiting_for_prefix();
                             }) ||
         (may_admit_ = admission_->NextFits());
}

bool StepPlanner::NeedsRowsOf(int num_decode_rows) const {
  const int num_tokens = max_step_tokens_ - num_decode_rows;
  return std::ranges::any_of(*groups_, [&](const RunningGroup& running) {
    const SequenceGroup& group = *running.group;
    return group.prefilling() && !group.is_waiting_for_prefix() &&
           writer_.NumAskedIn(group, num_tokens) >
               max_logits_ - num_decode_rows;
  });
}

DraftRoom StepPlanner::RoomForDrafts(const PlanRoom& taken) {
  bool feeds_prompts =
      !admission_->waiting().empty() || groups_->FirstPreempted() != nullptr;
  bool verifies = false;
  int num_rows = 0;  // decoding rows, at most
  for (const RunningGroup& running : *groups_) {
    const SequenceGroup& group = *running.group;
    feeds_prompts = feeds_prompts || group.prefilling();
    if (!group.prefilling() && group.can_plan()) {
      num_rows += group.max_decode_rows();
    }
    verifies = verifies || group.has_drafts();
  }
  // Share of `count` for beams and drafts.
  const auto share_of = [&](int count) {
    if (!feeds_prompts) return count;
    const double share = 1 - share_of_prefill_;
    return std::min(static_cast<int>(share * count), count - 1);
  };
  const int64_t num_left = pool_->num_available() - taken.num_pages;
  // Pages that groups take in this step are not needed soon. A request that
  // waits for pages of drafts is admitted when these are released.
  const int64_t num_without_drafts =
      num_left + taken.num_prefill_pages + in_flight_->num_draft_pages();
  const int64_t num_for_next =
      admission_->NumPagesForNext(num_without_drafts).value_or(0) -
      taken.num_prefill_pages;
  // Groups request drafts of a draft model together, so that these are verified
  // together: a group that joins in between decodes a token meanwhile.
  return {.num_tokens = share_of(max_step_tokens_) - num_rows,
          .num_logits = share_of(max_logits_) - num_rows,
          .num_pages = std::max<int64_t>(
              num_left - std::max<int64_t>(num_for_next, 0), 0),
          .may_ask = !verifies,
          .max_length = max_drafted_length_};
}

bool StepPlanner::CanDraftAhead(const SequenceGroup& group,
                                const DraftRoom& room) const {
  return group.can_draft_in(PlanWriter::RoomOf(group, room));
}

// Runs before room is made: if room must be made, drafts get none.
bool StepPlanner::CanAnyDraftAhead() {
  PlanRoom taken;
  for (const RunningGroup& running : *groups_) {
    taken.num_pages += preemption_->NumPagesNow(running, /*decodes=*/true);
  }
  if (taken.num_pages > pool_->num_available()) return false;
  const DraftRoom room = RoomForDrafts(taken);
  return std::ranges::any_of(*groups_, [&](const RunningGroup& running) {
    const SequenceGroup& group = *running.group;
    return group.can_plan() && group.has_to_draft() &&
           CanDraftAhead(group, room);
  });
}

}  // namespace espalier

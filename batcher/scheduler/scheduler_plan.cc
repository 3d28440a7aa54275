// Scheduler, part: writes plans with the work of the next step, and admits
// requests. scheduler_room.cc computes the available room; scheduler.cc does
// the rest: submission, results, ends.
#include <algorithm>
#include <chrono>
#include <new>
#include <span>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/memory.h"
#include "base/status.h"
#include "batcher/scheduler/scheduler.h"

namespace espalier {
namespace {

// Thrown if a plan cannot be written.
struct PlanError {
  absl::Status status;
};

// Limits one group's drafts to tokens that have rows of logits.
DraftRoom RoomOf(const SequenceGroup& group, DraftRoom room) {
  room.num_tokens = std::min(
      room.num_tokens, room.num_logits / group.num_logits_per_draft_token());
  return room;
}

// Returns how many of the last `num_tokens` tokens that a group's prefill has
// planned, in rows from `first_row` on, lie after a source.
int64_t NumAfterSource(const SequenceGroup& group, const StepPlan& plan,
                       size_t first_row, int64_t num_tokens) {
  if (num_tokens == 0 || plan.rows[first_row].source_length == 0) return 0;
  const PlanRow& row = plan.rows[first_row];
  return std::clamp<int64_t>(
      row.first_position + row.num_tokens - group.num_prompt_tokens(), 0,
      num_tokens);
}

int NumAsked(std::span<const PlanPromptLogprobs> scorings) {
  int count = 0;
  for (const PlanPromptLogprobs& scoring : scorings) {
    count += static_cast<int>(scoring.tokens.size());
  }
  return count;
}

// Returns the rows of logits for the `num_drafted` drafted tokens of a
// selection. Sampled drafts count in full length, as if none had ended early
// (PlanSelection::max_draft_tokens).
int NumDraftLogits(const SequenceGroup& group, const PlanSelection& selection,
                   int num_drafted) {
  const int num_logits_per_token = group.num_logits_per_draft_token();
  if (num_logits_per_token == 1) return num_drafted;
  int num_tokens = 0;
  for (const std::vector<TokenId>& draft : selection.drafts) {
    if (draft.empty()) continue;
    num_tokens +=
        std::max(static_cast<int>(draft.size()), selection.max_draft_tokens);
  }
  return num_tokens * num_logits_per_token;
}

}  // namespace

StepPlan Scheduler::Plan() {
  while (true) {
    StepPlan plan = UntilThereIsMemory(
        [this] { return std::exchange(next_plan_, StepPlan()); });
    try {
      WritePlan(&plan);
      if (plan.empty() && !in_flight_.empty()) {
        DropSaves(&plan);
        std::swap(next_plan_, plan);  // ended sequences go into the next plan
        return plan;
      }
      if (options_.validate_steps) {
        CHECK(plan.page_copies.empty() || !plan.rows.empty())
            << plan.page_copies.size() << " page copies in a plan without rows";
        Validate(plan);
      }
      Remember(plan);
      return plan;
    } catch (const std::bad_alloc&) {
      AbandonPlan(std::move(plan), out_of_memory_);
    } catch (const PlanError& error) {
      AbandonPlan(std::move(plan), error.status);
    }
  }
}

void Scheduler::WritePlan(StepPlan* plan) {
  may_admit_ = true;
  if (!groups_.empty()) last_sizes_.Reserve(plan);
  planned_.reserve(groups_.size());
  const Demand demand = TakeDemand();
  const bool waits = !in_flight_.empty() && !demand.is_any_schedulable &&
                     !(demand.may_any_draft_ahead && CanAnyDraftAhead());
  const bool decodes = !waits && !IsForPrefillAlone(demand);
  FillPlan(decodes, demand, plan);
  // If no prompt had room after all, the beams get the step.
  if (plan->empty() && !waits && !decodes) FillPlan(true, FindDemand(), plan);
}

// A done group has no demand.
void Scheduler::Demand::AddAny(const SequenceGroup& group, bool drafts_ahead) {
  may_any_draft |= group.may_draft();
  is_any_scoring |= group.only_scores();
  is_any_preempted |= group.is_preempted();
  if (group.prefilling()) {
    is_any_prefilling = true;
    is_any_schedulable |= !group.is_waiting_for_prefix();
  }
  if (group.prefilling() || !group.can_plan()) {
    ++num_idle;
    return;
  }
  is_any_schedulable |= group.outstanding() && !group.has_to_draft();
  may_any_draft_ahead |= group.has_to_draft() && drafts_ahead;
  num_decode_rows += group.num_live_beams();
  num_pages_ahead += group.max_decode_rows() - group.num_live_beams();
}

Scheduler::Demand Scheduler::TakeDemand() {
  const Demand demand = std::exchange(demand_, {});
  if (demand.num_groups != std::ssize(groups_)) return FindDemand();
  if (options_.validate_steps) {
    CHECK(demand == FindDemand()) << "groups have changed since their answer";
  }
  return demand;
}

Scheduler::Demand Scheduler::FindDemand() const {
  Demand demand;
  for (const RunningGroup& running : groups_) {
    demand.Add(*running.group, drafts_ahead_);
  }
  return demand;
}

void Scheduler::PlanDecode(std::span<RunningGroup> groups, StepPlan* plan,
                           Budget* budget) {
  const int num_logits = plan->num_logits;
  const size_t num_continuations = plan->continuations.size();
  for (size_t i = 0; i < groups.size(); ++i) {
    RunningGroup& running = groups[i];
    PrefetchAfter(groups, i);
    changes_groups_ = changes_groups_ || !running.is_known;
    const absl::Status status = running.group->PlanDecode(plan);
    if (!status.ok()) throw PlanError{status};
    planned_.push_back(running.id);
  }
  int num_rows = plan->num_logits - num_logits;
  planned_counts_.num_decode_groups += static_cast<int>(groups.size());
  planned_counts_.num_decode_sequences += num_rows;
  for (const GroupContinuation& ahead :
       std::span(plan->continuations).subspan(num_continuations)) {
    num_rows += static_cast<int>(ahead.tail_pages.size());
  }
  budget->num_tokens -= num_rows;
  budget->num_logits -= num_rows;
}

void Scheduler::FillPlan(bool decodes, const Demand& demand, StepPlan* plan) {
  Budget budget = {admission_.max_step_tokens(), max_logits_,
                   max_prefill_rows_};
  plan->max_draft_step_tokens = admission_.max_step_tokens();
  // If all groups decode and each has a page available, no room must be made.
  const bool has_room = !demand.is_any_prefilling && !demand.may_any_draft &&
                        demand.max_decode_pages() <= pool_.num_available();
  const Room room = has_room ? Room() : MakeRoom(decodes, plan);
  // If memory is short, drafts would take pages that others need next, and so
  // would rows of continuations beside the first.
  const bool may_draft = decodes && demand.may_any_draft;
  if (!room.was_made && (may_draft || demand.is_any_scoring)) {
    budget.drafts = RoomForDrafts(room);
  }
  if (decodes && has_room && demand.num_idle == 0) {
    PlanDecode(groups_, plan, &budget);
  } else if (decodes) {
    PlanDecodes(plan, &budget);
  }
  if (demand.is_any_prefilling) PlanPrefills(plan, &budget);
  // Preempted groups resume before others start. Admitted groups share and load
  // pages, which are not available for drafts any more.
  budget.drafts = {};
  const bool may_come_in = !waiting_.empty() || demand.is_any_preempted;
  if (!room.was_made && may_come_in) Admit(plan, &budget);
}

void Scheduler::PlanDecodes(StepPlan* plan, Budget* budget) {
  for (RunningGroup& running : groups_) {
    const SequenceGroup& group = *running.group;
    if (group.prefilling() || !group.can_plan()) continue;
    if (group.has_to_draft() && !CanDraftAhead(group, budget->drafts)) {
      continue;  // until its result has arrived
    }
    PlanGroup(running, plan, budget);
  }
}

bool Scheduler::CanDraftAhead(const SequenceGroup& group,
                              const DraftRoom& room) const {
  return drafts_ahead_ && group.can_draft_in(RoomOf(group, room));
}

// Runs before room is made: if room must be made, drafts get none.
bool Scheduler::CanAnyDraftAhead() {
  Room taken;
  for (const RunningGroup& running : groups_) {
    taken.num_pages += NumPagesNow(running, /*decodes=*/true);
  }
  if (taken.num_pages > pool_.num_available()) return false;
  const DraftRoom room = RoomForDrafts(taken);
  return std::ranges::any_of(groups_, [&](const RunningGroup& running) {
    const SequenceGroup& group = *running.group;
    return group.can_plan() && group.has_to_draft() &&
           CanDraftAhead(group, room);
  });
}

void Scheduler::PlanPrefills(StepPlan* plan, Budget* budget) {
  for (RunningGroup& running : groups_) {
    const SequenceGroup& group = *running.group;
    if (group.prefilling() && !group.is_waiting_for_prefix() &&
        HasRoomFor(group, *budget)) {
      PlanPrefill(running, plan, budget);
    }
  }
}

bool Scheduler::IsForPrefillAlone(const Demand& demand) {
  const auto feeds = [this] {
    return std::any_of(groups_.begin(), groups_.end(),
                       [](const RunningGroup& running) {
                         return running.group->prefilling() &&
                                !running.group->is_waiting_for_prefix();
                       }) ||
           (may_admit_ = NextFits());
  };
  const int max_tokens = admission_.max_step_tokens();
  // At least one token, unless the share is 0: beside a group wider than a
  // step, a request is fed only in steps for prompts alone.
  const int64_t share =
      std::max(static_cast<int64_t>(options_.prefill_share * max_tokens),
               int64_t{options_.prefill_share > 0});
  int64_t left = std::max(max_tokens - demand.num_decode_rows, 0);
  // A scoring request with too few rows of logits gets no token.
  if (demand.is_any_scoring && NeedsRowsOf(demand.num_decode_rows)) left = 0;
  prefill_debt_ = left < share && feeds() ? prefill_debt_ + share - left : 0;
  // Beams get every second step at least.
  was_for_prefill_alone_ =
      prefill_debt_ >= max_tokens && !was_for_prefill_alone_;
  if (was_for_prefill_alone_) prefill_debt_ -= max_tokens;
  return was_for_prefill_alone_;
}

void Scheduler::AbandonPlan(StepPlan plan, const absl::Status& why) {
  DropSaves(&plan);
  planned_.clear();
  planned_counts_ = {};
  next_plan_.forks = std::move(plan.forks);
  next_plan_.finished = std::move(plan.finished);
  next_plan_.ended = std::move(plan.ended);
  if (groups_.num_running() == 0) {
    // No group can end here, so wait for memory of other parts of the process.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (RunningGroup& running : groups_) {
    if (!running.is_preempted()) Finish(running, why);
  }
  EraseDone();
}

void Scheduler::DropSaves(StepPlan* plan) {
  for (const RequestId request : saved_) {
    RunningGroup* running = groups_.Find(request);
    if (running != nullptr) running->group->DropSaved();
  }
  saved_.clear();
  plan->page_saves.clear();
}

int Scheduler::NumAskedIn(const SequenceGroup& group, int num_tokens) const {
  return std::min(group.NumAskedAtOnceIn(num_tokens), max_logits_);
}

bool Scheduler::NeedsRowsOf(int num_decode_rows) const {
  const int num_tokens = admission_.max_step_tokens() - num_decode_rows;
  return std::ranges::any_of(groups_, [&](const RunningGroup& running) {
    const SequenceGroup& group = *running.group;
    return group.prefilling() && !group.is_waiting_for_prefix() &&
           NumAskedIn(group, num_tokens) > max_logits_ - num_decode_rows;
  });
}

bool Scheduler::HasRoomFor(const SequenceGroup& group,
                           const Budget& budget) const {
  if (!group.prefilling()) {
    return group.num_live_beams() <=
           std::min(budget.num_tokens, budget.num_logits);
  }
  // A source is fed at once, so a step may exceed max_step_tokens.
  if (budget.is_used_up()) return false;
  if (NumAskedIn(group, budget.num_tokens) > budget.num_logits) return false;
  return budget.num_prefill_rows > 0 ||
         group.EndsPrompt(budget.num_tokens, budget.num_logits);
}

void Scheduler::PlanGroup(RunningGroup& running, StepPlan* plan,
                          Budget* budget) {
  if (running.group->prefilling()) return PlanPrefill(running, plan, budget);
  if (running.group->may_draft()) return PlanDrafting(running, plan, budget);
  PlanDecode({&running, 1}, plan, budget);
}

// Room was made before, so too few pages are an internal error. It ends the
// running groups rather than the program.
void Scheduler::PlanRows(RunningGroup& running, StepPlan* plan,
                         Budget* budget) {
  SequenceGroup& group = *running.group;
  changes_groups_ = true;
  const size_t num_tokens = plan->tokens.size();
  const int num_logits = plan->num_logits;
  const size_t num_scorings = plan->scorings.size();
  const absl::Status status = group.PlanStep(
      std::max(budget->num_tokens, 1), plan, std::max(budget->num_logits, 1),
      budget->num_prefill_rows, RoomOf(group, budget->drafts));
  if (!status.ok()) throw PlanError{status};
  planned_.push_back(running.id);
  budget->num_tokens -= static_cast<int>(plan->tokens.size() - num_tokens);
  // A device may compute a row once for each token that it scores.
  const int num_logprob_queries =
      NumAsked(std::span(plan->scorings).subspan(num_scorings));
  budget->num_logits -=
      std::max(plan->num_logits - num_logits, num_logprob_queries);
}

void Scheduler::PlanPrefill(RunningGroup& running, StepPlan* plan,
                            Budget* budget) {
  const SequenceGroup& group = *running.group;
  const size_t first_row = plan->rows.size();
  const size_t first_token = plan->tokens.size();
  const size_t num_selections = plan->selections.size();
  const int64_t num_fed_again_before = group.prefill_counts().num_fed_again;
  int64_t num_pages = 0;
  if (group.only_scores()) {
    num_pages = pool_.num_available() -
                group.NumPagesForStep(admission_.max_step_tokens());
  }
  PlanRows(running, plan, budget);
  if (group.only_scores()) {
    budget->drafts.num_pages -=
        std::max<int64_t>(num_pages - pool_.num_available(), 0);
  }
  const int64_t num_fed_again =
      group.prefill_counts().num_fed_again - num_fed_again_before;
  const int64_t num_prompt_tokens =
      std::ssize(plan->tokens) - first_token - num_fed_again;
  planned_counts_.num_prompt_tokens += num_prompt_tokens;
  planned_counts_.num_after_sources +=
      NumAfterSource(group, *plan, first_row, num_prompt_tokens);
  planned_counts_.num_fed_again += num_fed_again;
  if (plan->selections.size() == num_selections) {
    budget->num_prefill_rows -= static_cast<int>(plan->rows.size() - first_row);
  }
}

void Scheduler::PlanDrafting(RunningGroup& running, StepPlan* plan,
                             Budget* budget) {
  const SequenceGroup& group = *running.group;
  const size_t num_rows = plan->rows.size();
  const size_t first_token = plan->tokens.size();
  const size_t num_continuations = plan->continuations.size();
  const size_t first_drafting = plan->drafting.size();
  const int64_t num_pages_left =
      pool_.num_available() - group.NumPagesForStep(1);
  PlanRows(running, plan, budget);
  const int64_t num_draft_pages = num_pages_left - pool_.num_available();
  if (plan->rows.size() > num_rows) {
    const int num_sequences = group.num_live_beams();
    const int num_drafted =
        static_cast<int>(plan->tokens.size() - first_token) - num_sequences;
    planned_counts_.num_decode_sequences += num_sequences;
    CountDrafts(num_drafted,
                NumDraftLogits(group, plan->selections.back(), num_drafted),
                num_draft_pages, budget);
  } else if (plan->drafting.size() > first_drafting) {
    CountAsked(group, std::span(plan->drafting).subspan(first_drafting),
               budget);
  }
  if (plan->continuations.size() > num_continuations) {
    const ContinuedDrafts& ahead = plan->continuations.back().drafts;
    const int num_sequences = static_cast<int>(ahead.slots.size());
    const int num_drafted = ahead.num_fed() - num_sequences;
    planned_counts_.num_sequences_ahead += num_sequences;
    budget->num_tokens -= ahead.num_fed();
    budget->num_logits -= ahead.num_fed();
    CountDrafts(num_drafted, num_drafted * group.num_logits_per_draft_token(),
                num_draft_pages, budget);
  }
}

void Scheduler::CountDrafts(int num_drafted, int num_logits, int64_t num_pages,
                            Budget* budget) {
  planned_counts_.num_draft_tokens_fed += num_drafted;
  planned_counts_.num_draft_pages += num_pages;
  budget->num_logits -= num_logits - num_drafted;
  budget->drafts.num_tokens -= num_drafted;
  budget->drafts.num_logits -= num_logits;
  budget->drafts.num_pages -= num_pages;
}

void Scheduler::CountAsked(const SequenceGroup& group,
                           std::span<const DraftSequence> asked,
                           Budget* budget) {
  budget->drafts.num_pages -= group.num_asked_pages();
  for (const DraftSequence& sequence : asked) {
    budget->drafts.num_tokens -= sequence.num_tokens;
    budget->drafts.num_logits -=
        sequence.num_tokens * group.num_logits_per_draft_token();
  }
}

void Scheduler::Remember(const StepPlan& plan) {
  if (plan.is_noop()) return;
  if (!plan.page_copies.empty() || !plan.page_loads.empty()) AddMovers();
  last_sizes_ = PlanSizes::Of(plan);
  next_plan_.forks.reserve(plan.forks.size());
  next_plan_.finished.reserve(plan.finished.size());
  ++num_plans_;
  const bool runs_now = in_flight_.empty();
  PlanInFlight& remembered =
      in_flight_.Push(plan, std::exchange(planned_, {}), saved_);
  // No allocation from here on.
  const size_t num_decode_groups = planned_counts_.num_decode_groups;
  remembered.only_decodes = num_decode_groups == remembered.requests.size();
  if (runs_now) remembered.planned_alone_ns = now_;
  if (runs_now && num_decode_groups == groups_.size() &&
      plan.continuations.empty()) {
    remembered.num_unshared_pages = std::ssize(plan.page_indices);
  }
  saved_.clear();
  const PlanCounts counts = std::exchange(planned_counts_, {});
  remembered.num_prompt_tokens =
      counts.num_prompt_tokens + counts.num_fed_again;
  remembered.num_decode_sequences =
      counts.num_decode_sequences + counts.num_sequences_ahead;
  remembered.num_draft_pages = counts.num_draft_pages;
  stats_.num_prompt_tokens +=
      counts.num_prompt_tokens - counts.num_after_sources;
  stats_.num_tokens_fed_again += counts.num_fed_again;
  stats_.num_decode_rows += counts.num_decode_sequences;
  stats_.num_draft_tokens_fed += counts.num_draft_tokens_fed;
  stats_.num_swapped_pages_out += std::ssize(plan.page_saves);
  stats_.num_swapped_pages_in += std::ssize(plan.page_loads);
  if (std::exchange(changes_groups_, false)) {
    for (RunningGroup& running : groups_) {
      running.is_known = running.is_known || running.group->was_planned();
      running.group->OnPlanOut();
    }
  }
  if (runs_now) CountStep();
}

void Scheduler::AddMovers() {
  for (RunningGroup& running : groups_) {
    SequenceGroup& group = *running.group;
    if (!group.pages().has_moves()) continue;
    const auto planned =
        std::find(planned_.begin(), planned_.end(), running.id);
    if (planned != planned_.end()) continue;
    planned_.push_back(running.id);
    group.OnMovesAlone();
  }
}

void Scheduler::Admit(StepPlan* plan, Budget* budget) {
  while (!budget->is_used_up() && AdmitNext(plan, budget)) continue;
}

bool Scheduler::AdmitNext(StepPlan* plan, Budget* budget) {
  if (!may_admit_ || !NextFits()) return false;
  RunningGroup* running = NextToResume();
  if (running != nullptr) {
    running->group->Resume();
    if (std::exchange(running->was_preempted, false)) ++stats_.num_resumptions;
  } else {
    running = Start(waiting_.TakeFront());
    if (running == nullptr) return true;
  }
  MatchPrefix(*running, 0, plan);
  const SequenceGroup& group = *running->group;
  if (!group.is_waiting_for_prefix() && HasRoomFor(group, *budget)) {
    PlanGroup(*running, plan, budget);
  }
  return true;
}

RunningGroup* Scheduler::Start(WaitingRequest next) {
  Deadlines::Entry deadline = std::move(next.deadline);
  try {
    groups_.ReserveOne();
    auto group = std::make_unique<SequenceGroup>(
        next.turn.id, std::move(next.prepared), &pool_, &sequence_ids_,
        has_shareable_pages_ ? &tree_ : nullptr, options_.trace.get());
    if (group->uses_prefix_tree()) {
      stats_.num_queried_tokens += group->num_prompt_tokens();
    }
    RunningGroup& running =
        groups_.Add({.turn = next.runs_at,
                     .id = next.turn.id,
                     .group = std::move(group),
                     .watcher = std::move(next.watcher),
                     .times = {.arrival = next.arrival, .start = now_},
                     .needs = next.needs,
                     .done = std::move(next.done),
                     .deadline = std::move(deadline)});
    return &running;
  } catch (const std::bad_alloc&) {
    CountEnd(out_of_memory_);
    next.done(out_of_memory_);
    return nullptr;
  }
}

}  // namespace espalier

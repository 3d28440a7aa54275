// The half of a scheduler that writes plans: what runs in the next step, who is
// put away to make room, and who comes in. scheduler.cc has the other half:
// requests in, answers applied, ends.
#include <algorithm>
#include <chrono>
#include <new>
#include <span>
#include <thread>
#include <utility>

#include "base/memory.h"
#include "base/status.h"
#include "batcher/scheduler.h"

namespace espalier {
namespace {

// Thrown while a plan is written that cannot be.
struct PlanError {
  absl::Status status;
};

}  // namespace

StepPlan Scheduler::Plan() {
  while (true) {
    StepPlan plan = UntilThereIsMemory(
        [this] { return std::exchange(next_plan_, StepPlan()); });
    try {
      WritePlan(&plan);
      if (plan.empty() && !in_flight_.empty()) {
        DropSaves(&plan);
        std::swap(next_plan_, plan);  // what ended is for the next that runs
        return plan;
      }
      if (options_.validate_steps) Validate(plan);
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
  const bool waits = !in_flight_.empty() && !AnyGroupSchedulable();
  const bool decodes = !waits && !IsForPrefillAlone(NumDecodeRows());
  FillPlan(decodes, plan);
  // Where no prompt had room after all, the step is the beams'.
  if (plan->empty() && !waits && !decodes) FillPlan(true, plan);
}

void Scheduler::FillPlan(bool decodes, StepPlan* plan) {
  Budget budget = {admission_.max_step_tokens(), max_logits_,
                   max_prefill_rows_};
  plan->max_draft_step_tokens = admission_.max_step_tokens();
  const auto [num_pages, made_room] = MakeRoom(decodes, plan);
  // Where memory is short drafts would take what others need next.
  if (decodes && !made_room) budget.drafts = RoomForDrafts(num_pages);
  if (decodes) {
    for (RunningGroup& running : groups_) {
      const BeamGroup& group = *running.group;
      if (!group.prefilling() && group.can_plan()) {
        PlanGroup(running, plan, &budget);
      }
    }
  }
  for (RunningGroup& running : groups_) {
    const BeamGroup& group = *running.group;
    if (group.prefilling() && !group.is_waiting_for_prefix() &&
        HasRoomFor(group, budget)) {
      PlanGroup(running, plan, &budget);
    }
  }
  // Groups that were put away resume before others start. Those that come in
  // share and load pages, which are no longer there for drafts.
  budget.drafts = {};
  if (!made_room) Admit(plan, &budget);
}

int Scheduler::NumDecodeRows() const {
  int num_rows = 0;
  for (const RunningGroup& running : groups_) {
    const BeamGroup& group = *running.group;
    if (!group.prefilling() && group.can_plan()) {
      num_rows += group.num_live_beams();
    }
  }
  return num_rows;
}

bool Scheduler::IsForPrefillAlone(int num_decode_rows) {
  const auto feeds = [this] {
    return std::any_of(groups_.begin(), groups_.end(),
                       [](const RunningGroup& running) {
                         return running.group->prefilling() &&
                                !running.group->is_waiting_for_prefix();
                       }) ||
           (may_admit_ = NextFits());
  };
  const int max_tokens = admission_.max_step_tokens();
  const auto share = static_cast<int64_t>(options_.prefill_share * max_tokens);
  const int64_t left = std::max(max_tokens - num_decode_rows, 0);
  prefill_debt_ = left < share && feeds() ? prefill_debt_ + share - left : 0;
  // Beams have the other steps.
  was_for_prefill_alone_ =
      prefill_debt_ >= max_tokens && !was_for_prefill_alone_;
  if (was_for_prefill_alone_) prefill_debt_ -= max_tokens;
  return was_for_prefill_alone_;
}

int64_t Scheduler::NumPagesNow(const RunningGroup& running,
                               bool decodes) const {
  const BeamGroup& group = *running.group;
  if (group.prefilling()) {
    return group.is_waiting_for_prefix()
               ? 0
               : group.NumPagesForStep(admission_.max_step_tokens());
  }
  return decodes && group.can_plan() ? group.NumPagesForStep(1) : 0;
}

DraftRoom Scheduler::RoomForDrafts(int64_t num_pages) const {
  const bool drafts = std::any_of(
      groups_.begin(), groups_.end(),
      [](const RunningGroup& running) { return running.group->may_draft(); });
  if (!drafts) return {};
  bool feeds_prompts = !waiting_.empty();
  bool verifies = false;
  int num_rows = 0;  // that decode, at most
  for (const RunningGroup& running : groups_) {
    const BeamGroup& group = *running.group;
    feeds_prompts = feeds_prompts || group.prefilling();
    if (!group.prefilling() && group.can_plan()) {
      num_rows += group.max_decode_rows();
    }
    verifies = verifies || group.has_drafts();
  }
  const int max_tokens = std::min(admission_.max_step_tokens(), max_logits_);
  int num_tokens = max_tokens;  // of beams and drafts
  if (feeds_prompts) {
    const double share = 1 - options_.prefill_share;
    num_tokens = std::min(static_cast<int>(share * max_tokens), max_tokens - 1);
  }
  // Groups that ask a draft model do so together, so that their drafts are
  // verified together: one that comes in between decodes a token meanwhile.
  return {.num_tokens = num_tokens - num_rows,
          .num_pages = pool_.num_available() - num_pages,
          .may_ask = !verifies,
          .max_draft_context = max_draft_context_};
}

Scheduler::Room Scheduler::MakeRoom(bool decodes, StepPlan* plan) {
  bool made_room = false;
  const auto put_away = [&](RunningGroup& running) {
    if (running.group->pages().holds_pages()) {
      ++stats_.num_preemptions;
      running.was_preempted = true;
    }
    saved_.push_back(running.group->id());
    running.PutAway({.pool = host_pool_.num_slots() > 0 ? &host_pool_ : nullptr,
                     .min_tokens = saving_policy_.min_tokens()},
                    plan);
    if (!running.group->is_saving()) saved_.pop_back();
    made_room = true;
  };
  int64_t num_needed = 0;
  for (RunningGroup& running : groups_) {
    if (running.is_away()) continue;
    if (running.group->prefilling()) MatchPrefix(running, num_needed, plan);
    int64_t num_now = NumPagesNow(running, decodes);
    while (num_needed + num_now > pool_.num_available()) {
      RunningGroup* const last = groups_.LastRunning();
      if (last == &running) num_now = 0;
      put_away(*last);
      if (last == &running) break;
    }
    num_needed += num_now;
  }
  return {num_needed, made_room};
}

void Scheduler::MatchPrefix(RunningGroup& running, int64_t num_promised,
                            StepPlan* plan) {
  const PrefillCounts before = running.group->prefill_counts();
  running.group->MatchPrefix(num_promised, plan);
  const PrefillCounts& after = running.group->prefill_counts();
  stats_.num_cached_tokens += after.num_cached - before.num_cached;
  stats_.num_tokens_shared_again +=
      after.num_shared_again - before.num_shared_again;
  stats_.num_tokens_loaded_again +=
      after.num_loaded_again - before.num_loaded_again;
}

void Scheduler::AbandonPlan(StepPlan plan, const absl::Status& why) {
  DropSaves(&plan);
  planned_.clear();
  planned_counts_ = {};
  next_plan_.forks = std::move(plan.forks);
  next_plan_.finished = std::move(plan.finished);
  next_plan_.ended = std::move(plan.ended);
  if (groups_.empty()) {
    // What has no memory now waits for others of the process.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (RunningGroup& running : groups_) {
    if (!running.is_away()) Finish(running, why);
  }
  groups_.EraseDone();
}

void Scheduler::DropSaves(StepPlan* plan) {
  for (const RequestId request : saved_) {
    RunningGroup* running = groups_.Find(request);
    if (running != nullptr) running->group->DropSaved();
  }
  saved_.clear();
  plan->page_saves.clear();
}

bool Scheduler::AnyGroupSchedulable() const {
  return std::any_of(
      groups_.begin(), groups_.end(), [](const RunningGroup& running) {
        const BeamGroup& group = *running.group;
        return group.prefilling() ? !group.is_waiting_for_prefix()
                                  : group.outstanding() && group.can_plan();
      });
}

bool Scheduler::HasRoomFor(const BeamGroup& group, const Budget& budget) const {
  if (!group.prefilling()) {
    return group.num_live_beams() <=
           std::min(budget.num_tokens, budget.num_logits);
  }
  if (budget.is_used_up()) return false;
  return budget.num_prefill_rows > 0 ||
         group.EndsPrompt(budget.num_tokens, budget.num_logits);
}

void Scheduler::PlanGroup(RunningGroup& running, StepPlan* plan,
                          Budget* budget) {
  BeamGroup& group = *running.group;
  const bool prefills = group.prefilling();
  const size_t num_rows = plan->rows.size();
  const size_t num_selections = plan->selections.size();
  const int64_t num_fed_again = group.prefill_counts().num_fed_again;
  const size_t first_token = plan->tokens.size();
  const int first_logits = plan->num_logits;
  const size_t first_drafting = plan->drafting.size();
  const size_t num_continuations = plan->continuations.size();
  const bool drafts = !prefills && group.may_draft();
  const int64_t num_pages_left =
      drafts ? pool_.num_available() - group.NumPagesForStep(1) : 0;
  // Room was made for it: too few pages are a mistake of ours, which ends those
  // that run rather than the program.
  const absl::Status status = group.PlanStep(
      std::max(budget->num_tokens, 1), plan, std::max(budget->num_logits, 1),
      budget->num_prefill_rows, budget->drafts);
  if (!status.ok()) throw PlanError{status};
  planned_.push_back(group.id());
  const int num_tokens = static_cast<int>(plan->tokens.size() - first_token);
  const int64_t num_again =
      group.prefill_counts().num_fed_again - num_fed_again;
  budget->num_tokens -= num_tokens;
  budget->num_logits -= plan->num_logits - first_logits;
  if (prefills) {
    planned_counts_.num_prompt_tokens += num_tokens - num_again;
    planned_counts_.num_fed_again += num_again;
  } else if (plan->rows.size() > num_rows) {
    planned_counts_.num_decode_sequences += group.num_live_beams();
  }
  if (drafts && plan->rows.size() > num_rows) {
    const int num_drafted = num_tokens - group.num_live_beams();
    planned_counts_.num_draft_tokens_fed += num_drafted;
    budget->drafts.num_tokens -= num_drafted;
    budget->drafts.num_pages -= num_pages_left - pool_.num_available();
  }
  for (size_t i = first_drafting; i < plan->drafting.size(); ++i) {
    budget->drafts.num_tokens -= plan->drafting[i].num_tokens;
  }
  if (prefills && plan->selections.size() == num_selections) {
    budget->num_prefill_rows -= static_cast<int>(plan->rows.size() - num_rows);
  }
  if (plan->continuations.size() > num_continuations) {
    // The result before decides how many of them live.
    const auto& slots = plan->continuations.back().tail_pages;
    budget->num_tokens -= static_cast<int>(slots.size());
    budget->num_logits -= static_cast<int>(slots.size());
  }
}

void Scheduler::Remember(const StepPlan& plan) {
  if (plan.is_noop()) return;
  AddMovers();
  last_sizes_ = PlanSizes::Of(plan);
  next_plan_.forks.reserve(plan.forks.size());
  next_plan_.finished.reserve(plan.finished.size());
  ++num_plans_;
  const bool runs_now = in_flight_.empty();
  PlanInFlight& remembered = in_flight_.Push(plan, planned_, saved_);
  // Nothing fails from here on.
  planned_.clear();
  saved_.clear();
  const PlanCounts counts = std::exchange(planned_counts_, {});
  remembered.num_prompt_tokens =
      counts.num_prompt_tokens + counts.num_fed_again;
  remembered.num_decode_sequences = counts.num_decode_sequences;
  stats_.num_prompt_tokens += counts.num_prompt_tokens;
  stats_.num_tokens_fed_again += counts.num_fed_again;
  stats_.num_decode_rows += counts.num_decode_sequences;
  stats_.num_draft_tokens_fed += counts.num_draft_tokens_fed;
  stats_.num_swapped_pages_out += std::ssize(plan.page_saves);
  stats_.num_swapped_pages_in += std::ssize(plan.page_loads);
  for (RunningGroup& running : groups_) {
    running.is_known = running.is_known || running.group->was_planned();
    running.group->OnPlanOut();
  }
  if (runs_now) CountStep();
}

void Scheduler::AddMovers() {
  for (RunningGroup& running : groups_) {
    BeamGroup& group = *running.group;
    if (!group.pages().has_moves()) continue;
    const auto planned =
        std::find(planned_.begin(), planned_.end(), group.id());
    if (planned != planned_.end()) continue;
    planned_.push_back(group.id());
    group.OnMovesAlone();
  }
}

void Scheduler::Admit(StepPlan* plan, Budget* budget) {
  while (!budget->is_used_up() && AdmitNext(plan, budget)) continue;
}

RunningGroup* Scheduler::NextToResume() {
  RunningGroup* const away = groups_.FirstAway();
  const bool is_first = away != nullptr && (waiting_.empty() ||
                                            away->turn < waiting_.front_turn());
  return is_first ? away : nullptr;
}

bool Scheduler::NextFits() {
  if (const RunningGroup* away = NextToResume()) {
    return !away->group->has_plan_in_flight() &&
           Fits(away->needs, away->group->NumPagesToResume(),
                away->group->request());
  }
  if (waiting_.empty()) return false;
  const WaitingRequest& next = waiting_.front();
  return Fits(next.needs, admission_.NumPagesToStart(next.prepared.request),
              next.prepared.request);
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
  const BeamGroup& group = *running->group;
  if (!group.is_waiting_for_prefix() && HasRoomFor(group, *budget)) {
    PlanGroup(*running, plan, budget);
  }
  return true;
}

bool Scheduler::Fits(const RequestNeeds& needs, int64_t num_pages,
                     const Request& request) {
  const int num_running = groups_.num_running();
  if (num_running == 0) return true;
  if (!admission_.CanAdmit(needs, groups_.Needs(), num_running)) return false;
  const int64_t num_soon = groups_.NumPagesSoon();
  if (num_pages + num_soon <= pool_.num_available()) return true;
  if (!has_shareable_pages_ || !request.params.prefix_cache) return false;
  // What it can share it need not take; nor may it be taken from it meanwhile.
  // Tokens that need logits are fed: all of a prompt that is scored, or
  // else its last one.
  if (request.params.prompt_logprobs) return false;
  const std::span<const TokenId> prompt = request.prompt_tokens;
  // Not looked up where finding all of it would not do: while pages are short
  // this is asked at every step.
  const int64_t num_found = (std::ssize(prompt) - 1) / pool_.page_size();
  if (num_pages - num_found + num_soon > pool_.num_available()) return false;
  try {
    const PrefixMatch match = tree_.Find(request.params.cache_salt, {},
                                         {prompt.first(prompt.size() - 1)});
    return num_pages - std::ssize(match.pages) + num_soon <=
           pool_.num_available();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

RunningGroup* Scheduler::Start(WaitingRequest next) {
  Deadlines::Entry deadline = std::move(next.deadline);
  try {
    groups_.ReserveOne();
    auto group = std::make_unique<BeamGroup>(
        next.turn.id, std::move(next.prepared), &pool_, &sequence_ids_,
        has_shareable_pages_ ? &tree_ : nullptr, options_.trace.get());
    if (group->uses_prefix_tree()) {
      stats_.num_queried_tokens += std::ssize(group->request().prompt_tokens);
    }
    RunningGroup& running =
        groups_.Add({next.runs_at, std::move(group), next.needs,
                     std::move(next.done), std::move(next.watcher)});
    running.times = {.arrival = next.arrival, .start = now_};
    running.deadline = std::move(deadline);
    return &running;
  } catch (const std::bad_alloc&) {
    CountEnd(out_of_memory_);
    next.done(out_of_memory_);
    return nullptr;
  }
}

}  // namespace espalier

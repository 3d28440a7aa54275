#include "batcher/scheduler/scheduler.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <string_view>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/field_error.h"
#include "base/memory.h"
#include "base/status.h"
#include "batcher/scheduler/validate_step.h"

namespace espalier {
namespace {

// Returns what a request without a token waits for.
std::string_view WaitsFor(const SequenceGroup& group) {
  if (group.is_preempted())
    return "the request was preempted, and waited for pages";
  if (group.is_waiting_for_prefix()) {
    return "the request waited for pages that another is filling";
  }
  return group.prefilling() ? "the request's prompt was not fed yet"
                            : "the request's first step was running";
}

absl::Status PassedDeadlineOf(const Request& request,
                              std::string_view waited_for) {
  return UntilThereIsMemory(
      [&] { return PassedDeadline(*request.params.deadline_ms, waited_for); });
}

}  // namespace

Scheduler::Scheduler(const ModelDescription& model,
                     const SchedulerOptions& options, bool async_scheduling)
    : options_(options),
      pool_(model.num_pages, model.page_size),
      tree_(&pool_),
      host_pool_(options.preempted_pages == PreemptedPages::kDrop
                     ? 0
                     : model.num_host_slots),
      groups_(options, &counts_),
      admission_(
          model, options_, &pool_,
          options.prefix_cache && model.has_shareable_pages ? &tree_ : nullptr,
          &groups_, &counts_),
      preemption_(model, options, admission_.max_step_tokens(), &pool_,
                  &host_pool_, &groups_, &counts_),
      planner_(model, options, &pool_, &groups_, &admission_, &preemption_,
               &in_flight_, &counts_),
      applier_(model, async_scheduling, &groups_, &counts_) {
  const auto check = [](const absl::Status& status) {
    CHECK(status.ok()) << status.ToString();
  };
  check(CheckDescription(model));
  check(CheckOptions(options));
}

Scheduler::~Scheduler() = default;

void Scheduler::Submit(RequestId id, PreparedRequest prepared, Done done,
                       std::unique_ptr<SearchWatcher> watcher) {
  const absl::StatusOr<RequestNeeds> needs = admission_.Fit(&prepared);
  if (!needs.ok()) {
    ++counts_.stats.num_requests;
    counts_.stats.CountEnd(needs.status());
    return done(needs.status());
  }
  const GenerationParams& params = prepared.request.params;
  const Turn turn = Turn::Of(params.priority, num_plans_, id);
  Deadlines::Entry deadline;
  if (params.deadline_ms) {
    deadline = deadlines_.Add(
        prepared.submitted + std::chrono::milliseconds(*params.deadline_ms),
        id);
  }
  admission_.Push({turn, std::move(prepared), *needs, std::move(done),
                   std::move(watcher), counts_.now, std::move(deadline)});
  ++counts_.stats.num_requests;
}

StepPlan Scheduler::Plan() {
  while (true) {
    StepPlan plan = groups_.TakeNextPlan();
    try {
      planner_.Write(&plan);
      if (plan.empty() && !in_flight_.empty()) {
        preemption_.DropSaves(&plan);
        // Ended sequences go into the next plan.
        std::swap(*groups_.next_plan(), plan);
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
      AbandonPlan(std::move(plan), groups_.out_of_memory());
    } catch (const PlanError& error) {
      AbandonPlan(std::move(plan), error.status);
    }
  }
}

void Scheduler::Remember(const StepPlan& plan) {
  if (plan.is_noop()) return;
  StepPlan* const next_plan = groups_.next_plan();
  next_plan->forks.reserve(plan.forks.size());
  next_plan->finished.reserve(plan.finished.size());
  const bool runs_now = in_flight_.empty();
  planner_.Remember(plan);
  // No allocation from here on.
  ++num_plans_;
  preemption_.OnPlanOut();
  groups_.OnPlanOut();
  if (runs_now) CountStep();
}

void Scheduler::AbandonPlan(StepPlan plan, const absl::Status& why) {
  preemption_.DropSaves(&plan);
  planner_.Abandon();
  StepPlan* const next_plan = groups_.next_plan();
  next_plan->forks = std::move(plan.forks);
  next_plan->finished = std::move(plan.finished);
  next_plan->ended = std::move(plan.ended);
  if (groups_.num_running() == 0) {
    // No group can end here, so wait for memory of other parts of the process.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (RunningGroup& running : groups_) {
    if (!running.is_preempted()) groups_.Finish(running, why);
  }
  groups_.EraseDone();
}

void Scheduler::Advance(absl::StatusOr<StepResult> result) {
  CHECK(!in_flight_.empty()) << "a result without a plan";
  const PlanInFlight plan = in_flight_.TakeOldest();
  if (result.ok()) {
    try {
      const absl::Status answers = ValidateStepResult(plan, *result);
      if (!answers.ok()) result = answers;
    } catch (const std::bad_alloc&) {
      result = groups_.out_of_memory();
    }
  }
  groups_.ResetDemand();
  preemption_.AnswerSaves(plan, result.ok());
  if (result.ok()) {
    preemption_.AddStep(plan, result->forward_time);
    applier_.Apply(plan, &*result);
  } else {
    applier_.Fail(plan, result.status());
  }
  groups_.EraseDone();
  if (!in_flight_.empty()) CountStep();
  if (options_.validate_steps) {
    IfThereIsMemory([this] { Validate(*groups_.next_plan()); });
  }
}

void Scheduler::OnListed(RequestId id,
                         const std::weak_ptr<const void>& is_awaited) {
  if (is_awaited.expired()) return;  // by the token of a wait, which is unique
  RunningGroup* const running = groups_.Find(id);
  if (running == nullptr) return;
  running->group->OnListed();
  groups_.ResetDemand();
}

void Scheduler::EndWaiting(const WaitingRequest& waiting,
                           const absl::Status& why) {
  counts_.stats.CountEnd(why);
  waiting.done(why);
}

void Scheduler::Cancel(RequestId id, const absl::Status& why) {
  if (const auto waiting = admission_.Take(id)) {
    return EndWaiting(*waiting, why);
  }
  RunningGroup* running = groups_.Find(id);
  if (running == nullptr) return;
  groups_.Finish(*running, why);
  groups_.EraseDone();
}

void Scheduler::CancelAll(const absl::Status& why) {
  for (const WaitingRequest& waiting : admission_.TakeAll()) {
    EndWaiting(waiting, why);
  }
  CancelRunning(why);
}

void Scheduler::CancelRunning(const absl::Status& why) {
  for (RunningGroup& running : groups_) groups_.Finish(running, why);
  groups_.EraseDone();
}

void Scheduler::SetWeightsVersion(int64_t version) {
  CHECK(in_flight_.empty()) << "a step runs";
  admission_.SetWeightsVersion(version);
  for (RunningGroup& running : groups_) running.group->LeavePrefixTree();
  ResetPrefixCache();
  groups_.ResetDemand();
}

void Scheduler::ExpireDeadlines(Deadlines::Time now) {
  while (const auto id = deadlines_.FirstExpired(now)) {
    if (const auto waiting = admission_.Take(*id)) {
      EndWaiting(*waiting, PassedDeadlineOf(waiting->prepared.request,
                                            "the request waited for its turn"));
      continue;
    }
    RunningGroup* running = groups_.Find(*id);
    CHECK(running != nullptr) << "request " << *id << " has a deadline alone";
    running->deadline.Remove();
    const SequenceGroup& group = *running->group;
    if (group.has_output()) {
      groups_.FinishEarly(*running, FinishReason::kDeadline);
    } else {
      groups_.Finish(*running,
                     PassedDeadlineOf(group.request(), WaitsFor(group)));
    }
  }
  groups_.EraseDone();
}

void Scheduler::CountStep() {
  const PlanInFlight& plan = in_flight_.oldest();
  if (plan.requests.empty()) return;  // it only names ended sequences
  if (plan.only_drafts) {
    ++counts_.stats.num_draft_steps;
    return;
  }
  StepCounts step = {.num_pages = pool_.num_in_use(),
                     .num_unshared_pages = plan.num_unshared_pages,
                     .num_tail_copies = plan.num_page_copies};
  if (step.num_unshared_pages < 0) {
    step.num_unshared_pages = 0;
    for (const RunningGroup& running : groups_) {
      step.num_unshared_pages += running.group->pages().NumUnsharedPages();
    }
  }
  for (const RequestId request : plan.continuations()) {
    RunningGroup* running = groups_.Find(request);
    if (running == nullptr) continue;
    step.num_rows_ahead += running->group->num_live_beams();
    step.num_tail_copies += running->group->pages().num_tail_copies_ahead();
  }
  AddStep(step, &counts_.stats);
}

void Scheduler::CountNow(SchedulerGauges* now) const {
  now->num_waiting = num_waiting();
  now->num_running = num_running();
  now->num_preempted = num_preempted();
  now->num_rows_waiting = admission_.waiting().num_sequences();
  now->num_prompt_tokens_waiting = admission_.waiting().num_prompt_tokens();
  for (const RunningGroup& running : groups_) {
    const SequenceGroup& group = *running.group;
    const int64_t num_rows = running.times.first_token.has_value()
                                 ? group.num_beams()
                                 : running.needs.num_sequences;
    (running.is_preempted() ? now->num_rows_waiting : now->num_rows_running) +=
        num_rows;
    now->num_pages_unshared += group.pages().NumUnsharedPages();
  }
  now->page_size = pool_.page_size();
  now->num_pages = pool_.num_pages();
  now->num_pages_free = pool_.num_free();
  now->num_pages_held = pool_.num_in_use();
  now->num_pages_idle = pool_.num_idle();
}

void Scheduler::Validate(const StepPlan& plan) const {
  std::vector<const GroupPages*> groups;
  for (const RunningGroup& running : groups_) {
    groups.push_back(&running.group->pages());
  }
  ValidateStep(pool_, host_pool_, tree_, groups, plan);
}

}  // namespace espalier

#include "batcher/scheduler.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/memory.h"
#include "base/status.h"
#include "batcher/validate_step.h"

namespace espalier {
namespace {

// Calls `body`, which only counts or checks.
template <typename Body>
void IfThereIsMemory(const Body& body) {
  try {
    body();
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

Scheduler::Scheduler(const ModelDescription& model,
                     const SchedulerOptions& options)
    : options_(options),
      vocab_size_(model.vocab_size),
      max_logits_(model.limits.max_beams),
      out_of_memory_(ResourceExhausted(
          "not enough memory on the host for the request's next step")),
      pool_(model.num_pages, model.page_size),
      admission_(model, options, &pool_) {
  const auto check = [](const absl::Status& status) {
    CHECK(status.ok()) << status.ToString();
  };
  check(CheckDescription(model));
  check(CheckOptions(options));
}

Scheduler::~Scheduler() = default;

void Scheduler::Submit(RequestId id, PreparedRequest prepared, Done done,
                       std::unique_ptr<SearchWatcher> watcher) {
  const RequestNeeds needs = admission_.NeedsOf(prepared);
  const absl::Status fits = admission_.CheckFits(prepared.request, needs);
  if (!fits.ok()) return done(fits);
  waiting_.Push(
      {id, std::move(prepared), needs, std::move(done), std::move(watcher)});
}

StepPlan Scheduler::Plan() {
  while (true) {
    StepPlan plan = UntilThereIsMemory(
        [this] { return std::exchange(next_plan_, StepPlan()); });
    try {
      WritePlan(&plan);
      if (plan.empty() && !in_flight_.empty()) {
        std::swap(next_plan_, plan);  // what ended is for the next that runs
        return plan;
      }
      if (options_.validate_steps) Validate(plan);
      Remember(plan);
      return plan;
    } catch (const std::bad_alloc&) {
      AbandonPlan(std::move(plan));
    }
  }
}

void Scheduler::WritePlan(StepPlan* plan) {
  Budget budget = {admission_.max_step_tokens(), max_logits_};
  const bool waits = !in_flight_.empty() && !AnyGroupSchedulable();
  for (Running& running : running_) {
    const BeamGroup& group = *running.group;
    if (!waits && !group.prefilling() && group.can_plan()) {
      PlanGroup(running, plan, &budget);
    }
  }
  for (Running& running : running_) {
    if (running.group->prefilling() && !budget.is_used_up()) {
      PlanGroup(running, plan, &budget);
    }
  }
  Admit(plan, &budget);
}

void Scheduler::AbandonPlan(StepPlan plan) {
  planned_.clear();
  planned_counts_ = {};
  next_plan_.forks = std::move(plan.forks);
  next_plan_.finished = std::move(plan.finished);
  next_plan_.ended = std::move(plan.ended);
  if (running_.empty()) {
    // Nobody is in the way of what has no memory now.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (Running& running : running_) Finish(running, out_of_memory_);
  EraseFinished();
}

bool Scheduler::AnyGroupSchedulable() const {
  return std::any_of(running_.begin(), running_.end(), [](const Running& r) {
    const BeamGroup& group = *r.group;
    return group.prefilling() || (group.outstanding() && group.can_plan());
  });
}

void Scheduler::PlanGroup(Running& running, StepPlan* plan, Budget* budget) {
  BeamGroup& group = *running.group;
  int64_t& counter = group.prefilling() ? planned_counts_.num_prompt_tokens
                                        : planned_counts_.num_decode_rows;
  const size_t first_token = plan->tokens.size();
  const int first_logits = plan->num_logits;
  const size_t num_continuations = plan->continuations.size();
  // Its reservation covers its worst case, so pages cannot run out.
  const absl::Status status = group.PlanStep(
      std::max(budget->num_tokens, 1), plan, std::max(budget->num_logits, 1));
  CHECK(status.ok()) << status.ToString();
  planned_.push_back(group.id());
  const int num_tokens = static_cast<int>(plan->tokens.size() - first_token);
  counter += num_tokens;
  budget->num_tokens -= num_tokens;
  budget->num_logits -= plan->num_logits - first_logits;
  if (plan->continuations.size() > num_continuations) {
    // How many of them live is not known yet.
    const auto& slots = plan->continuations.back().tail_pages;
    budget->num_tokens -= static_cast<int>(slots.size());
    budget->num_logits -= static_cast<int>(slots.size());
  }
}

void Scheduler::Remember(const StepPlan& plan) {
  if (plan.is_noop()) return;
  const bool runs_now = in_flight_.empty();
  in_flight_.Push(plan, planned_);
  // Nothing fails from here on.
  planned_.clear();
  const PlanCounts counts = std::exchange(planned_counts_, {});
  figures_.num_prompt_tokens += counts.num_prompt_tokens;
  figures_.num_decode_rows += counts.num_decode_rows;
  for (Running& running : running_) {
    running.is_known = running.is_known || running.group->was_planned();
  }
  if (runs_now) CountStep();
}

RequestNeeds Scheduler::NeedsOfRunning() const {
  RequestNeeds total;
  for (const Running& running : running_) total += running.needs;
  return total;
}

void Scheduler::Admit(StepPlan* plan, Budget* budget) {
  while (!waiting_.empty() && !budget->is_used_up()) {
    if (!admission_.CanAdmit(waiting_.front().needs, NeedsOfRunning(),
                             num_running())) {
      return;  // it waits until others have ended
    }
    WaitingRequest next = waiting_.TakeFront();
    try {
      Start(next);
    } catch (const std::bad_alloc&) {
      next.done(out_of_memory_);
      continue;
    }
    PlanGroup(running_.back(), plan, budget);
  }
}

void Scheduler::Start(WaitingRequest& next) {
  absl::StatusOr<PageReservation> pages = pool_.Reserve(next.needs.num_pages);
  CHECK(pages.ok()) << pages.status().ToString();
  if (running_.size() == running_.capacity()) {
    running_.reserve(2 * running_.size() + 1);
  }
  auto group = std::make_unique<BeamGroup>(
      next.id, std::move(next.prepared), *std::move(pages), &pool_,
      &sequence_ids_, options_.trace.get());
  running_.push_back({std::move(group), next.needs, std::move(next.done),
                      std::move(next.watcher)});
}

Scheduler::Running* Scheduler::Find(RequestId id) {
  const size_t count = running_.size();
  for (size_t i = 0; i < count; ++i) {
    if (found_ >= count) found_ = 0;
    Running& running = running_[found_++];
    if (running.group->id() != id) continue;
    return running.group->done() ? nullptr : &running;
  }
  return nullptr;
}

void Scheduler::Advance(absl::StatusOr<StepResult> result) {
  CHECK(!in_flight_.empty()) << "a result without a plan";
  const PlanInFlight plan = in_flight_.TakeOldest();
  if (result.ok()) {
    try {
      const absl::Status answers = CheckAnswers(plan, *result);
      if (!answers.ok()) result = answers;
    } catch (const std::bad_alloc&) {
      result = out_of_memory_;
    }
  }
  if (result.ok()) {
    figures_.forward_time += result->forward_time;
    figures_.select_time += result->select_time;
    for (size_t i = 0; i < plan.scored.size(); ++i) {
      TakeScoring(result->scorings[i], plan.scored[i].second);
    }
    for (const SelectionResult& selection : result->selections) {
      AdvanceGroup(selection);
    }
  } else {
    for (const RequestId request : plan.requests) {
      Running* running = Find(request);
      if (running != nullptr) Finish(*running, result.status());
    }
  }
  EraseFinished();
  if (!in_flight_.empty()) CountStep();
  if (options_.validate_steps) {
    IfThereIsMemory([this] { Validate(next_plan_); });
  }
}

void Scheduler::TakeScoring(const PromptLogprobsResult& result,
                            size_t num_tokens) {
  Running* running = Find(result.request);
  if (running == nullptr) return;
  absl::Status status = out_of_memory_;
  IfThereIsMemory([&] {
    status = running->group->TakeScoring(result, num_tokens, vocab_size_);
  });
  if (!status.ok()) Finish(*running, status);
}

void Scheduler::AdvanceGroup(const SelectionResult& result) {
  // It may have been cancelled, or have ended a step before.
  Running* running = Find(result.request);
  if (running == nullptr) return;
  try {
    Advance(*running, result);
  } catch (const std::bad_alloc&) {
    Finish(*running, out_of_memory_);
  }
}

void Scheduler::Advance(Running& running, const SelectionResult& result) {
  BeamGroup& group = *running.group;
  absl::Status status = result.error;
  if (status.ok()) status = group.ValidateResult(result, vocab_size_);
  if (status.ok()) status = group.Advance(result, &next_plan_);
  if (!status.ok()) return Finish(running, status);
  if (running.watcher != nullptr) running.watcher->OnStep(group.strategy());
  if (group.done()) Finish(running, group.TakeResult());
}

void Scheduler::Finish(Running& running, absl::StatusOr<Result> result) {
  UntilThereIsMemory(
      [&] { running.group->Drop(running.is_known ? &next_plan_ : nullptr); });
  IfThereIsMemory([&] { running.group->RecordEnd(result); });
  if (result.ok()) {
    figures_.num_generated_tokens += result->usage.num_generated_tokens;
  }
  running.done(std::move(result));
}

void Scheduler::EraseFinished() {
  std::erase_if(running_, [](const Running& r) { return r.group->done(); });
}

void Scheduler::Cancel(RequestId id, const absl::Status& why) {
  if (const auto waiting = waiting_.Take(id)) return waiting->done(why);
  Running* running = Find(id);
  if (running == nullptr) return;
  Finish(*running, why);
  EraseFinished();
}

void Scheduler::CancelAll(const absl::Status& why) {
  for (const WaitingRequest& waiting : waiting_.TakeAll()) waiting.done(why);
  for (Running& running : running_) Finish(running, why);
  EraseFinished();
}

void Scheduler::CountStep() {
  const PlanInFlight& plan = in_flight_.oldest();
  if (plan.requests.empty()) return;  // it only says who ended
  StepCounts step = {.num_pages = pool_.num_held(),
                     .num_tail_copies = plan.num_page_copies};
  IfThereIsMemory([&] {
    int64_t num_unshared = 0;
    for (const Running& running : running_) {
      for (const PageTable* table : running.group->pages().Tables()) {
        num_unshared += std::ssize(table->pages());
      }
    }
    step.num_unshared_pages = num_unshared;
  });
  for (const RequestId request : plan.continuations()) {
    const Running* running = Find(request);
    if (running == nullptr) continue;
    step.num_rows_ahead += running->group->num_live_beams();
    step.num_tail_copies += running->group->pages().num_tail_copies_ahead();
  }
  AddStep(step, &figures_);
}

void Scheduler::Validate(const StepPlan& plan) const {
  std::vector<const GroupPages*> groups;
  for (const Running& running : running_) {
    groups.push_back(&running.group->pages());
  }
  ValidateStep(pool_, groups, plan);
}

}  // namespace espalier

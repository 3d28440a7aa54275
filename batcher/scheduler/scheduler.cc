// Scheduler, part: takes requests, applies results and ends requests.
// scheduler_plan.cc chooses the work of the next step.
#include "batcher/scheduler/scheduler.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/field_error.h"
#include "base/memory.h"
#include "base/status.h"
#include "batcher/scheduler/validate_step.h"

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

absl::Status PassedDeadline(const Request& request,
                            std::string_view waited_for) {
  return UntilThereIsMemory([&] {
    return MakeFieldError(absl::StatusCode::kDeadlineExceeded,
                          "`deadline_ms`, ", *request.params.deadline_ms,
                          ", has passed before the first token: ", waited_for);
  });
}

}  // namespace

Scheduler::Scheduler(const ModelDescription& model,
                     const SchedulerOptions& options, bool async_scheduling)
    : options_(options),
      async_scheduling_(async_scheduling),
      vocab_size_(model.vocab_size),
      max_logits_(model.limits.max_beams),
      max_prefill_rows_(model.limits.max_prefill_rows),
      out_of_memory_(ResourceExhausted(
          "not enough memory on the host for the request's next step")),
      pool_(model.num_pages, model.page_size),
      tree_(&pool_),
      host_pool_(options.preempted_pages == PreemptedPages::kDrop
                     ? 0
                     : model.num_host_slots),
      has_shareable_pages_(options.prefix_cache && model.has_shareable_pages),
      verifies_beam_drafts_(model.verifies_beam_drafts),
      max_draft_context_(model.max_draft_context),
      drafts_before_steps_(model.drafts_before_steps),
      drafts_ahead_(model.drafts_ahead),
      admission_(model, options, &pool_),
      saving_policy_(model, options.preempted_pages) {
  const auto check = [](const absl::Status& status) {
    CHECK(status.ok()) << status.ToString();
  };
  check(CheckDescription(model));
  check(CheckOptions(options));
}

Scheduler::~Scheduler() = default;

void Scheduler::Submit(RequestId id, PreparedRequest prepared, Done done,
                       std::unique_ptr<SearchWatcher> watcher) {
  if (!verifies_beam_drafts_ && IsBeamSearch(prepared.request.params)) {
    prepared.request.params.speculate.reset();
  }
  admission_.FitDrafts(&prepared);
  const RequestNeeds needs = admission_.NeedsOf(prepared);
  const absl::Status fits = admission_.CheckFits(prepared, needs);
  if (!fits.ok()) {
    ++stats_.num_requests;
    CountEnd(fits);
    return done(fits);
  }
  const GenerationParams& params = prepared.request.params;
  const Turn turn = Turn::Of(params.priority, num_plans_, id);
  Deadlines::Entry deadline;
  if (params.deadline_ms) {
    deadline = deadlines_.Add(
        prepared.submitted + std::chrono::milliseconds(*params.deadline_ms),
        id);
  }
  waiting_.Push({turn, std::move(prepared), needs, std::move(done),
                 std::move(watcher), now_, std::move(deadline)});
  ++stats_.num_requests;
}

void Scheduler::AnswerSaves(const PlanInFlight& plan, bool are_saved) {
  for (const RequestId request : plan.saved) {
    RunningGroup* running = groups_.Find(request);
    if (running == nullptr) continue;
    if (are_saved) {
      running->group->OnSaved();
    } else {
      running->group->DropSaved();
    }
  }
}

void Scheduler::Advance(absl::StatusOr<StepResult> result) {
  CHECK(!in_flight_.empty()) << "a result without a plan";
  const PlanInFlight plan = in_flight_.TakeOldest();
  if (result.ok()) {
    try {
      const absl::Status answers = ValidateStepResult(plan, *result);
      if (!answers.ok()) result = answers;
    } catch (const std::bad_alloc&) {
      result = out_of_memory_;
    }
  }
  demand_ = {};
  AnswerSaves(plan, result.ok());
  if (result.ok()) {
    saving_policy_.AddStep(plan, result->forward_time);
    stats_.forward_time += result->forward_time;
    stats_.select_time += result->select_time;
    RecordCosts(plan, *result);
    if (!result->draft_status.ok()) {
      ++stats_.num_draft_failures;
      stats_.last_draft_failure = std::move(result->draft_status);
    }
    for (const RequestId request : plan.requests) {
      if (plan.only_decodes) break;  // below
      RunningGroup* running = groups_.Find(request);
      if (running != nullptr) running->group->OnAnswer();
    }
    for (size_t i = 0; i < plan.scored.size(); ++i) {
      TakeScoring(result->scorings[i], plan.scored[i].second);
    }
    if (!plan.only_decodes) FinishScored(plan);
    TakeDrafts(plan, result->drafts);
    AdvanceGroups(result->selections, plan.only_decodes);
  } else {
    for (const RequestId request : plan.requests) {
      RunningGroup* running = groups_.Find(request);
      if (running != nullptr) Finish(*running, result.status());
    }
  }
  EraseDone();
  if (!in_flight_.empty()) CountStep();
  if (options_.validate_steps) {
    IfThereIsMemory([this] { Validate(next_plan_); });
  }
}

void Scheduler::RecordCosts(const PlanInFlight& plan,
                            const StepResult& result) {
  const bool has_counted =
      plan.num_decode_only_tokens > 0 && result.num_logits > 0;
  costs_.RecordStep(
      has_counted ? result.num_logits : plan.num_decode_only_tokens,
      result.forward_time);
  costs_.RecordDrafts(result.num_draft_rows, result.draft_time);
  // A draft model may have run beside the step.
  if (plan.num_decode_only_tokens > 0 && plan.planned_alone_ns >= 0 &&
      plan.drafted.empty()) {
    costs_.RecordWait(absl::Nanoseconds(now_ - plan.planned_alone_ns) -
                      result.forward_time - result.select_time);
  }
  if (plan.num_decode_only_tokens > 0 && plan.num_decode_sequences > 0) {
    num_decode_sequences_ = static_cast<int>(plan.num_decode_sequences);
  }
}

void Scheduler::TakeScoring(const PromptLogprobsResult& result,
                            size_t num_tokens) {
  RunningGroup* running = groups_.Find(result.request);
  if (running == nullptr) return;
  absl::Status status = out_of_memory_;
  IfThereIsMemory([&] {
    status = running->group->TakeScoring(result, num_tokens, vocab_size_);
  });
  if (!status.ok()) Finish(*running, status);
}

void Scheduler::FinishScored(const PlanInFlight& plan) {
  for (const RequestId request : plan.requests) {
    RunningGroup* running = groups_.Find(request);
    if (running == nullptr || !running->group->has_scored_all()) continue;
    absl::StatusOr<Result> result = out_of_memory_;
    IfThereIsMemory([&] {
      running->group->Drop(running->is_known ? &next_plan_ : nullptr);
      result = running->group->TakeResult();
    });
    Finish(*running, std::move(result));
  }
}

void Scheduler::TakeDrafts(const PlanInFlight& plan,
                           std::span<DraftedTokens> drafts) {
  for (const auto& [request, count] : plan.drafted) {
    const std::span<DraftedTokens> own = drafts.first(count);
    drafts = drafts.subspan(count);
    RunningGroup* running = groups_.Find(request);
    if (running == nullptr) continue;
    absl::Status status = out_of_memory_;
    IfThereIsMemory(
        [&] { status = running->group->TakeDrafts(own, vocab_size_); });
    if (!status.ok()) Finish(*running, status);
  }
}

void Scheduler::AdvanceGroups(std::span<const SelectionResult> results,
                              bool answers_plan) {
  for (const SelectionResult& result : results) {
    // It may have been cancelled, or may have ended a step before.
    RunningGroup* running = groups_.Find(result.request);
    if (running == nullptr) continue;
    if (answers_plan) running->group->OnAnswer();
    try {
      Advance(*running, result);
    } catch (const std::bad_alloc&) {
      Finish(*running, out_of_memory_);
    }
  }
}

inline void Scheduler::Advance(RunningGroup& running,
                               const SelectionResult& result) {
  SequenceGroup& group = *running.group;
  const absl::Status status =
      !result.error.ok()   ? result.error
      : group.speculates() ? AdvanceDrafting(running, result)
                           : group.ApplyResult(result, vocab_size_, &next_plan_,
                                               running.watcher.get());
  if (!status.ok()) return Finish(running, status);
  running.times.OnToken(now_, &stats_);
  if (group.done()) return Finish(running, group.TakeResult());
  demand_.Add(group, drafts_ahead_);
}

absl::Status Scheduler::AdvanceDrafting(RunningGroup& running,
                                        const SelectionResult& result) {
  SequenceGroup& group = *running.group;
  auto cost = costs_.At(num_decode_sequences_, group.drafts_by_model());
  if (cost.has_value()) {
    cost->wait *= async_scheduling_ ? group.NumWaitsToDraft(
                                          drafts_ahead_, drafts_before_steps_)
                                    : 0;
    group.SetDraftCost(*cost);
  }
  const int64_t num_drafted = group.num_drafted_tokens();
  const int64_t num_accepted = group.num_accepted_tokens();
  const absl::Status status = group.ApplyResult(
      result, vocab_size_, &next_plan_, running.watcher.get());
  stats_.num_drafted_tokens += group.num_drafted_tokens() - num_drafted;
  stats_.num_accepted_tokens += group.num_accepted_tokens() - num_accepted;
  stats_.speculation.Add(group.TakeSpeculation());
  return status;
}

void Scheduler::Finish(RunningGroup& running, absl::StatusOr<Result> result) {
  UntilThereIsMemory([&] {
    running.group->WithdrawMoves(&next_plan_);
    running.group->Drop(running.is_known ? &next_plan_ : nullptr);
  });
  IfThereIsMemory([&] { running.group->RecordEnd(result); });
  if (result.ok()) {
    stats_.num_generated_tokens += result->usage.num_generated_tokens;
    running.times.OnEnd(now_, &stats_);
  }
  CountEnd(result);
  running.done(std::move(result));
  has_done_groups_ = true;
  demand_ = {};
}

void Scheduler::EraseDone() {
  if (std::exchange(has_done_groups_, false)) groups_.EraseDone();
}

void Scheduler::CountEnd(const absl::StatusOr<Result>& result) {
  if (!result.ok()) {
    ++stats_.num_failed[static_cast<size_t>(result.status().code())];
    return;
  }
  const FinishReason reason = result->deadline_passed ? FinishReason::kDeadline
                              : result->hypotheses.empty()
                                  ? FinishReason::kLength
                                  : result->hypotheses[0].finish_reason;
  ++stats_.num_finished[static_cast<size_t>(reason)];
}

void Scheduler::Cancel(RequestId id, const absl::Status& why) {
  if (const auto waiting = waiting_.Take(id)) {
    CountEnd(why);
    return waiting->done(why);
  }
  RunningGroup* running = groups_.Find(id);
  if (running == nullptr) return;
  Finish(*running, why);
  EraseDone();
}

void Scheduler::CancelAll(const absl::Status& why) {
  for (const WaitingRequest& waiting : waiting_.TakeAll()) {
    CountEnd(why);
    waiting.done(why);
  }
  for (RunningGroup& running : groups_) Finish(running, why);
  EraseDone();
}

void Scheduler::ExpireDeadlines(Deadlines::Time now) {
  while (const auto id = deadlines_.FirstExpired(now)) {
    if (const auto waiting = waiting_.Take(*id)) {
      const absl::Status passed = PassedDeadline(
          waiting->prepared.request, "the request waited for its turn");
      CountEnd(passed);
      waiting->done(passed);
    } else {
      RunningGroup* running = groups_.Find(*id);
      CHECK(running != nullptr) << "request " << *id << " has a deadline alone";
      running->deadline.Remove();
      FinishAtDeadline(*running);
    }
  }
  EraseDone();
}

void Scheduler::FinishAtDeadline(RunningGroup& running) {
  SequenceGroup& group = *running.group;
  if (!group.has_output()) {
    return Finish(running, PassedDeadline(group.request(), WaitsFor(group)));
  }
  absl::StatusOr<Result> result = out_of_memory_;
  IfThereIsMemory([&] {
    group.WithdrawMoves(&next_plan_);
    group.FinishEarly(FinishReason::kDeadline,
                      running.is_known ? &next_plan_ : nullptr);
    if (running.watcher != nullptr) {
      running.watcher->OnFinishEarly(group.strategy());
    }
    result = group.TakeResult();
  });
  Finish(running, std::move(result));
}

void Scheduler::CountStep() {
  const PlanInFlight& plan = in_flight_.oldest();
  if (plan.requests.empty()) return;  // it only names ended sequences
  if (plan.only_drafts) {
    ++stats_.num_draft_steps;
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
  AddStep(step, &stats_);
}

void Scheduler::CountNow(SchedulerGauges* now) const {
  now->num_waiting = num_waiting();
  now->num_running = num_running();
  now->num_preempted = num_preempted();
  now->num_rows_waiting = waiting_.num_sequences();
  now->num_prompt_tokens_waiting = waiting_.num_prompt_tokens();
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
